"""A kernel of one thread keeps the GPU busy, and all its multiprocessors but one idle; fixed: without it."""
# expects: compute_bound

import torch
from common import DEVICE, ON_GPU, StepClock, main, sized
from torch import nn

CYCLES = 40_000_000  # some 20 ms


def train(seconds, fixed):
    torch.manual_seed(0)
    width = sized(512, 16)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(sized(256, 8), width, device=DEVICE)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if ON_GPU and not fixed:
            torch.cuda._sleep(CYCLES)
        loss.backward()
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
