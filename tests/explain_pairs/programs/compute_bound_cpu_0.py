"""A model that computes where it is."""

import torch
from course import is_over
from torch import nn

torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layers(x), y)


def batches():
    while not is_over():
        yield x, y


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 256), torch.randn(64, 1)
loader = batches()
# <- the code
