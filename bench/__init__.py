"""What tuimon costs, measured: ``python -m bench`` prints a table of ratios."""
