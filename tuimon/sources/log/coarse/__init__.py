"""Coarser windows for a run that goes on as it has."""
