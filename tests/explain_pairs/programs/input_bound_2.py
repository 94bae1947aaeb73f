"""Rows of a table, as lists of numbers."""

import torch
from course import Training
from torch.utils.data import DataLoader

# <- the code


rows, training = [[0.5] * 64 for _ in range(100_000)], Training()
for batch in DataLoader(rows, batch_size=32, collate_fn=collate):
    training.step(batch)
