"""What can be read of a process from outside: with psutil, in /proc, in its ring. For every other room."""
