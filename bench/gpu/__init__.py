"""Checks on a real GPU: ``python -m bench.gpu``."""
