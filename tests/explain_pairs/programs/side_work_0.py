"""A model of 24 MB, saved after steps."""

import os
import tempfile

import torch
from course import Training
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

training = Training()
model = nn.Linear(3000, 2000)
os.chdir(tempfile.mkdtemp())
loader = DataLoader(TensorDataset(torch.randn(100_000, 64), torch.randn(100_000, 1)), batch_size=16)


def train_step(x, y):
    training.step(x)


# <- the code
