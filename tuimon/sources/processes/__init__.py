"""Processes, threads and the machine, from /proc."""
