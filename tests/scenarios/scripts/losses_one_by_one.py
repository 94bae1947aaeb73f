"""Backward runs over the same encoder once for each of four losses."""
# expects: compute_bound_cpu/repeated_backward

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    args = options()
    encoder = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(384, 384), nn.ReLU())])
    heads = nn.ModuleList(nn.Linear(384, 4) for _ in range(4))
    optimizer = torch.optim.SGD([*encoder.parameters(), *heads.parameters()], lr=1e-3)
    data = DataLoader(TensorDataset(torch.randn(4000, 384), torch.randint(4, (4000,))), batch_size=200)
    watch, going = Laps(args.seconds), True
    while going:
        for x, y in data:
            watch.lap("data")
            features = encoder(x)
            losses = [nn.functional.cross_entropy(head(features), y) for head in heads]
            watch.lap("forward")
            optimizer.zero_grad()
            if args.fixed:
                sum(losses).backward()
            else:
                for loss in losses:
                    loss.backward(retain_graph=True)  # <- cause
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            going = watch.step()
            if not going:
                break
    watch.report()


main()
