"""Evidence on the GPUs: their counters, their time within the steps, their allocator."""
