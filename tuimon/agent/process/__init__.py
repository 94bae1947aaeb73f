"""Facts of the process: rank, versions, precision, ptrace permission, pauses of the garbage collector."""
