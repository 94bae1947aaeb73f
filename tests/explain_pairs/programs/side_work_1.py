"""A model that is evaluated between steps."""

import torch
from course import Training
from torch.utils.data import DataLoader, TensorDataset

training = Training()
model = training.model
loader = DataLoader(TensorDataset(torch.randn(100_000, 64), torch.randn(100_000, 1)), batch_size=16)
held_out = DataLoader(TensorDataset(torch.randn(640, 64)), batch_size=16)


def train_step(x, y):
    training.step(x)


def evaluate(model, loader):
    with torch.no_grad():
        return sum(model(x).mean() for (x,) in loader)


# <- the code
