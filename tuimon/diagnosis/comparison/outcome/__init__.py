"""The outcome of a comparison: how alike both sides are, how many times as fast the later one is, what others cost."""
