"""GPUs: what NVML measured of them, and what the GPU clock did."""
