"""Staying invisible to torch: its compiler, graph captures, tracebacks."""
