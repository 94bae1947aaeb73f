"""Statistics that are computed beside the training."""

import multiprocessing
import threading

import torch
from course import is_over
from torch import nn

torch.set_num_threads(1)
layers = [layer for _ in range(30) for layer in (nn.Linear(32, 32), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 32), torch.randn(64, 1)


def train_step():
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def statistics():
    total = 0.0
    while True:
        for n in range(200_000):
            total += (n % 7) * 0.5


train_step()  # torch imports much at the first step of an optimizer
# <- the code
while not is_over():
    train_step()
