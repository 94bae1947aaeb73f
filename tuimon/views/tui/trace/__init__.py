"""A trace of some steps on the screen: tables, and a timeline to zoom into."""
