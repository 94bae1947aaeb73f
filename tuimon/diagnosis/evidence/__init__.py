"""The evidence that rules judge by."""
