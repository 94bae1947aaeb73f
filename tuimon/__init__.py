"""tuimon: a terminal monitor for PyTorch training."""
