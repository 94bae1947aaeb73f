"""Each of 24 layers reads the largest value off the GPU, which is busy all the same, in full float32."""
# expects: low_precision_unused

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, depth, guarded):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.LayerNorm(width))
            for _ in range(depth)
        )
        self.guarded = guarded

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
            if self.guarded and x.abs().max() > 1e4:
                x = x / 2
        return x


def train(seconds, fixed):
    torch.manual_seed(0)
    width = sized(1024, 16)
    model = Residual(width, sized(24, 3), guarded=not fixed).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(sized(4096, 8), width, device=DEVICE)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
