"""When each process is sampled, how often and how long, within a CPU budget."""
