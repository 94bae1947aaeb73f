"""The one place that knows what a stack means: its activity, the order of the loop, phases, lines, the call tree."""
