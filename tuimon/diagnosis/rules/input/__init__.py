"""The rule about the input: whether the training waits for its data, why, and what helps."""
