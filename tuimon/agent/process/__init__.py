"""Facts of the process: rank, versions, precision, ptrace permission, where its loop is, pauses of the collector."""
