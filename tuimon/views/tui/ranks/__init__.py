"""The ranks of a training, a row each."""
