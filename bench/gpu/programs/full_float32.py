"""Large matrix products in full float32, which no tensor core computes; fixed: TF32."""
# expects: low_precision_unused

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


def train(seconds, fixed):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if fixed else "highest")
    width, batch = sized(4096, 16), sized(8192, 8)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(6))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, width, device=DEVICE)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
