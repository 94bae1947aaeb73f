"""Facts of a process that can be read from outside: with psutil, in /proc, and in its ring."""
