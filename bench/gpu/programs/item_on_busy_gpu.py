"""The loss is read every step, of steps whose work keeps the GPU busy; fixed: every 50 steps."""
# expects: none

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


def train(seconds, fixed):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")  # nothing else holds it back
    width = sized(4096, 16)
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batch = sized(8192, 8)
    x, y = torch.randn(batch, width, device=DEVICE), torch.randint(10, (batch,), device=DEVICE)
    clock, losses, every = StepClock(seconds), [], 50 if fixed else 1
    while clock.goes_on():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if clock.steps % every == 0:
            losses.append(loss.item())
    return clock


if __name__ == "__main__":
    main(train)
