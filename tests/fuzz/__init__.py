"""Damaged and hostile input against everything that reads it: ``python -m tests.fuzz``."""
