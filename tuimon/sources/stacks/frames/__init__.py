"""Frames and stacks as records have them: numbered, shortened, with what their lines call."""
