"""DataLoaders, their workers, and sums over them."""
