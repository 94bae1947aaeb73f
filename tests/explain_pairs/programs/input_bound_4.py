"""Batches that a function makes."""

import itertools
import time

import torch
from course import Computing, is_over
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def make_batch(n):
    time.sleep(0.012)
    return torch.randn(16, 64)


# <- the code


torch.set_num_threads(1)
model = Computing(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for batch in batches():
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if is_over():
        break
