"""Folds records, and nothing else, into the state of a run: no clock, no I/O, one thread."""
