"""Opens the Monitor of each command: of a new run, of a running process, of a log; each loads only what it needs."""
