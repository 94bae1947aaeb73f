"""Stacks that a training samples itself, on request, where py-spy may not read it."""
