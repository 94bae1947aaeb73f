"""What stack samples say: phase, activity, lines, call tree."""
