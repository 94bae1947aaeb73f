"""A loop that reports its mean loss."""

import torch
from course import Training
from torch.utils.data import DataLoader, TensorDataset

training = Training(ms=4)
loader = DataLoader(TensorDataset(torch.randn(1_000_000, 64), torch.randn(1_000_000, 1)), batch_size=16)


def train_step(x, y):
    return training.step(x)


def report(mean):
    pass


# <- the code
