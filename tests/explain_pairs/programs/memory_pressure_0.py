"""A loop that keeps its losses."""

import time

import torch
from course import is_over
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)


def batches():
    while not is_over():
        yield torch.randn(128, 64), torch.randn(128, 1)


def criterion(output, y):
    time.sleep(0.02)
    loss = nn.functional.mse_loss(output, y)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    return loss


loader = batches()
# <- the code
