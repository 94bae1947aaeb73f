"""Steps and phases, of a window and of the whole run."""
