"""Whose time it is: claims on the step, and which of two findings a claim belongs to."""
