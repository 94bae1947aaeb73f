"""Stacks that py-spy read while they changed."""
