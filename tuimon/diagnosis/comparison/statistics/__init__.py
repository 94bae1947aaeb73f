"""Estimates and intervals that hold for steps which depend on one another: no part of it knows what a step is."""
