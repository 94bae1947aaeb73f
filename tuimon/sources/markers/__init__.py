"""From the ring of a training process to Steps, Ranges and Loader records."""
