"""Two sides compared: read from logs, and as text."""
