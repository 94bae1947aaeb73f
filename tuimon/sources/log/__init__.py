"""A run's log, read and written, and the output of its training."""
