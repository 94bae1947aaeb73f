"""A head is trained on features of an encoder whose gradients are computed, and that no optimizer holds."""
# expects: compute_bound_cpu/unused_gradients

from itertools import repeat

import torch
from laps import fit, options
from torch import nn


def main():
    args = options()
    encoder = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(384, 384), nn.ReLU())])
    encoder.requires_grad_(not args.fixed)
    head = nn.Linear(384, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-2)
    x, y = torch.randn(200, 384), torch.randint(4, (200,))
    fit(args, optimizer, repeat((x, y)), lambda x, y: nn.functional.cross_entropy(head(encoder(x)), y))  # <- cause


main()
