"""Autocast and a GradScaler on a small model, whose casts cost more launches than they save; fixed: neither."""
# expects: launch_bound

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


def train(seconds, fixed):
    torch.manual_seed(0)
    width, depth = sized(256, 8), sized(24, 2)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=not fixed)
    x, y = torch.randn(512, width, device=DEVICE), torch.randint(10, (512,), device=DEVICE)
    half = sized(torch.float16, torch.bfloat16)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, half, enabled=not fixed):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return clock


if __name__ == "__main__":
    main(train)
