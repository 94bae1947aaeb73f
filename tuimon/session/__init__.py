"""The Session folds Records, and nothing else, into the current picture: no clock, no I/O, one thread."""
