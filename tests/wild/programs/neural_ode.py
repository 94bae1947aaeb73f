"""torchdiffeq: a neural ODE; the true path of each batch is integrated again in Python."""
# expects: input_bound/hand_rolled_loader
# package: torchdiffeq

import torch
from planted import PLANTED, Clock
from torch import nn
from torchdiffeq import odeint

TIMES = torch.linspace(0.0, 1.0, 8)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2))

    def forward(self, t, y):
        return self.layers(y)


def spiral(x, y, turns):
    for _ in range(turns):
        x, y = x - 0.001 * (0.1 * x + 2 * y), y - 0.001 * (0.1 * y - 2 * x)  # <- cause
    return x, y


def make_batch():
    start = torch.randn(32, 2)
    if PLANTED:
        ends = [spiral(x, y, 6000) for x, y in start.tolist()]
        return start, torch.tensor(ends)
    return start, start.flip(1)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    while True:
        start, end = make_batch()
        path = odeint(flow, start, TIMES, method="rk4")
        loss = (path[-1] - end).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not clock.step():
            return clock.tell()


if __name__ == "__main__":
    main()
