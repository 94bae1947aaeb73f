"""A training in which nothing is wrong, for programs that are wrong around it."""

import torch
import torch.nn.functional as F
from until import small_model, steps


def train(seconds):
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in steps(seconds):
        x = torch.randn(64, 256)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
