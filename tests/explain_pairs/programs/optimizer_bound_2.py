"""A dense model of many parameters, with a small batch."""

import torch
from course import is_over
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.ReLU())))
x = torch.rand(48, 512)
# <- the code
while not is_over():
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
