"""A model that gates its input, in Python or in torch."""

import torch
from course import is_over
from torch import nn

torch.set_num_threads(1)


# <- the code


model = nn.Sequential(Gate(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 256), torch.randn(64, 1)
while not is_over():
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
