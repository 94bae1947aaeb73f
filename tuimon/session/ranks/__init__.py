"""The ranks of a training: a row each, and what is summed up for it."""
