"""Stack samples, by py-spy within a CPU budget."""
