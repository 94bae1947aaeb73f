"""The GPU pane and its cards, tables and figures."""
