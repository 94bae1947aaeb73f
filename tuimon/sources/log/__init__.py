"""A run's log, read and written; the output of the training."""
