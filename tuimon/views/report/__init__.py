"""The report: what a log says of a whole run."""
