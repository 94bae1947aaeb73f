"""Sources turn something outside (rings, py-spy, /proc, GPU drivers, a log) into Records."""
