"""The pane of hot lines and call tree."""
