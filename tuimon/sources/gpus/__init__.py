"""GPU counters, whichever vendor's library they come from."""
