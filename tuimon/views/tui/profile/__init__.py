"""The pane of hot lines, call tree, icicle."""
