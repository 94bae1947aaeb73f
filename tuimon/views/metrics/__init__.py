"""Metrics of a run for monitoring systems: one table of them, read by Prometheus's exporter."""
