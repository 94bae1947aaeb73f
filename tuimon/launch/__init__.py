"""Starts the target (environment, output file, signals, exit status), or attaches to one that runs."""
