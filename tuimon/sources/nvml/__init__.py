"""GPU counters, by the driver (NVML)."""
