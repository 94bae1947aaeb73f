"""One side of a comparison: a run made ready, what disturbed it, and estimates of what its steps take."""
