"""How a run has gone: its beginning against its latest part, trends, and sudden changes."""
