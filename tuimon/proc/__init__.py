"""Facts of a process that can be read from outside, with psutil, in /proc, in its ring; for every other room."""
