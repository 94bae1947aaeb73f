"""The outlets of metrics: Prometheus scrapes them, node_exporter reads a file, OpenTelemetry is sent them."""
