"""The optimizer multiplies matrices, for a third of the step: there is nothing to fuse, and no row to leave out."""
# healthy

import torch
from laps import fit, options
from torch import nn


class Muon(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            x = p.grad / (p.grad.norm() + 1e-7)
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (2.0315 * gram @ gram - 4.775 * gram) @ x
            p.add_(x, alpha=-0.01)


def main():
    args = options()
    weights = [nn.Parameter(0.05 * torch.randn(192, 192)) for _ in range(4)]

    def loss_of(x):
        for weight in weights:
            x = torch.relu(x @ weight)
        return x.square().mean()

    fit(args, Muon(weights), iter(lambda: (torch.randn(1500, 192),), None), loss_of)


main()
