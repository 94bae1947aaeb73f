"""A policy whose actions have a normal distribution."""

import torch
from course import is_over
from torch import nn
from torch.distributions import Normal

torch.set_num_threads(1)
mean = nn.Linear(64, 8)
scale = nn.Parameter(torch.zeros(8))
optimizer = torch.optim.SGD([*mean.parameters(), scale], lr=1e-4)


def model(x):
    return mean(x), scale.exp()


def batches():
    while not is_over():
        yield torch.randn(32, 64), torch.randn(32, 8)


def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


loader = batches()
# <- the code
