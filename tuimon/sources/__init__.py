"""Sources turn something outside (rings, py-spy, /proc, NVML, a log) into Records."""
