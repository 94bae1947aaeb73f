"""The loss of each of 16 heads selects by a mask: how much is left, the GPU has to say; fixed: torch.where."""
# expects: sync_point

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


def selected(errors, mask):
    return errors[mask].mean()


def weighted(errors, mask):
    return torch.where(mask, errors, 0.0).sum() / mask.sum()


def train(seconds, fixed):
    torch.manual_seed(0)
    width, heads, batch = sized(2048, 16), sized(16, 2), sized(2048, 8)
    body = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU()))).to(DEVICE)
    outputs = nn.ModuleList(nn.Linear(width, 256) for _ in range(heads)).to(DEVICE)
    optimizer = torch.optim.AdamW([*body.parameters(), *outputs.parameters()], lr=1e-4)
    x, y = torch.randn(batch, width, device=DEVICE), torch.randn(batch, 256, device=DEVICE)
    mask = torch.rand(batch, 256, device=DEVICE) < 0.3
    mean = weighted if fixed else selected
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        features = body(x)
        loss = sum(mean((output(features) - y).abs(), mask) for output in outputs)
        loss.backward()
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
