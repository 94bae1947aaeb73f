"""The update of 800 small tensors goes from one to the next (foreach=False); fixed: fused=True."""
# expects: optimizer_bound

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


def train(seconds, fixed):
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)) for _ in range(sized(200, 5))]
    model = nn.Sequential(*blocks).to(DEVICE)
    how = {"fused": True} if fixed else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)
    x = torch.randn(256, 64, device=DEVICE)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
