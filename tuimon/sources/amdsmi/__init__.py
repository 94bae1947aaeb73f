"""GPU counters, by AMD's system management library (amdsmi)."""
