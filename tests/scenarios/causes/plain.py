"""A training in which nothing is wrong, for programs that are wrong around it, or after a step."""

import torch
import torch.nn.functional as F
from until import small_model, steps


def train(seconds, after=None, batches=None):
    """``after(number, loss, model)`` follows each step, and ends the training by True."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in steps(seconds):
        x = torch.randn(64, 256) if batches is None else next(batches)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after is not None and after(number, loss, model):
            break
