"""Random training scripts on public frameworks."""
