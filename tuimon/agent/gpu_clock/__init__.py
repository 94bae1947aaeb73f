"""GPU time by CUDA events: recorded at phase boundaries, polled at step boundaries, never waited for."""
