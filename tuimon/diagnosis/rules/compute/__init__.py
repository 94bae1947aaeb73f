"""Rules about what the training computes on the CPU: the model, Python code in it, the optimizer."""
