"""What stack samples show: phase, activity, lines, call tree."""
