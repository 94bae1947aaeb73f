"""Which samples are evaluation: by lines that fetch without a backward, and by blocks that run in few steps."""
