"""A large table of which each batch uses a few rows."""

import torch
from course import Computing, is_over
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
# <- the code
model = Computing(64, 12)
words = TensorDataset(torch.randint(300_000, (100_000, 8)))
for (x,) in DataLoader(words, batch_size=64):
    loss = model(table(x).mean(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if is_over():
        break
