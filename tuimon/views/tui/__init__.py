"""The terminal app: a board of panes over a Session."""
