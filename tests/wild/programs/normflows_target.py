"""A normalizing flow (normflows): each step's samples of the target come from a Metropolis walk in plain Python."""
# expects: input_bound
# package: normflows

import math
import random

import normflows
import torch
from planted import PLANTED, Clock


def energy(x, y):
    return (math.hypot(x, y) - 2.0) ** 2 / 0.32 + 0.3 * math.sin(3 * x)  # <- cause


def walk(number):
    x, y = 2.0, 0.0
    points = []
    while len(points) < number:
        for _ in range(4):
            a, b = x + random.gauss(0, 0.4), y + random.gauss(0, 0.4)  # <- cause
            if random.random() < math.exp(min(0.0, energy(x, y) - energy(a, b))):  # <- cause
                x, y = a, b
        points.append((x, y))
    return torch.tensor(points)


def ring(number):
    angle = 2 * math.pi * torch.rand(number)
    radius = 2 + 0.4 * torch.randn(number)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), 1)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    flows = []
    for _ in range(6):
        flows += [
            normflows.flows.AffineCouplingBlock(normflows.nets.MLP([1, 48, 48, 2], init_zeros=True)),
            normflows.flows.Permute(2, mode="swap"),
        ]
    model = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), flows)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    sample = walk if PLANTED else ring
    while True:
        x = sample(512)
        optimizer.zero_grad()
        loss = model.forward_kld(x)
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
