"""Overlays: help, findings, stacks, memory, traces, quit, the picker of processes."""
