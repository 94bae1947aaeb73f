"""From times of CUDA events to GPU time per phase, idle time and launch lead."""
