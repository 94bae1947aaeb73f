"""Where the time goes: hot lines, call tree, icicle."""
