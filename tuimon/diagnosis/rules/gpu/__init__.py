"""Rules about GPUs: their pace, waits for them, copies to them, their state, who shares them."""
