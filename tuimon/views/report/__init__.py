"""The report: a whole run from its log."""
