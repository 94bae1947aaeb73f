"""The report as one self-contained HTML page: template, style, charts, the flame graph and its script."""
