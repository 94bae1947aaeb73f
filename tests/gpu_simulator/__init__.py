"""A simulated CPU thread and its GPUs: the truth that the GPU clock is held against."""
