"""Facts of a process that can be read from outside: in /proc, and in its ring."""
