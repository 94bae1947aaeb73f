"""A comparison of two sides as text."""
