"""Readers of /proc, for every other room."""
