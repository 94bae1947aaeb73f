"""Attention that goes from head to head, a dozen small kernels for each; fixed: all heads in one call."""
# expects: launch_bound

import torch
from common import DEVICE, StepClock, main, sized
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, at_once):
        super().__init__()
        self.heads, self.at_once = heads, at_once
        self.before, self.after = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.before(x).view(batch, length, 3, self.heads, -1).permute(2, 3, 0, 1, 4)  # q, k, v; then heads
        if self.at_once:
            mixed = nn.functional.scaled_dot_product_attention(*parts)
        else:
            mixed = torch.stack([self.head(*parts[:, head]) for head in range(self.heads)])
        return self.after(mixed.permute(1, 2, 0, 3).reshape(batch, length, width))

    def head(self, query, key, value):
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        return scores.softmax(-1) @ value


def train(seconds, fixed):
    torch.manual_seed(0)
    width, heads, length = sized(512, 16), sized(16, 4), sized(128, 4)
    model = nn.Sequential(*(Attention(width, heads, at_once=fixed) for _ in range(sized(8, 1)))).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(16, length, width, device=DEVICE)
    clock = StepClock(seconds)
    while clock.goes_on():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return clock


if __name__ == "__main__":
    main(train)
