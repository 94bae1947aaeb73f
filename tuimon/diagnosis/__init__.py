"""Finds what a training waits for: rules judge the evidence that a Session holds."""
