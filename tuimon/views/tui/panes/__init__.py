"""The board's panes."""
