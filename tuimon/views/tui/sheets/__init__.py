"""Overlays: help, findings, stack, filter, quit, the picker of processes."""
