"""Views show a Session: the TUI, headless lines, the report."""
