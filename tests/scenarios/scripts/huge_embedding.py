"""Adam walks over a whole embedding table for the few rows that a batch touches."""
# expects: optimizer_bound

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Recommender(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.items = nn.Embedding(60_000, 64, sparse=sparse)
        self.users = nn.Embedding(20_000, 64, sparse=sparse)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(1)


def main():
    args = options()
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(20_000, (60_000,)), torch.randint(60_000, (60_000,)), torch.rand(60_000))
    model = Recommender(args.fixed)
    kind = torch.optim.SparseAdam if args.fixed else torch.optim.Adam
    optimizer = kind(model.parameters(), lr=1e-3)
    watch = Laps(args.seconds)
    going = True
    while going:
        for user, item, rating in DataLoader(data, batch_size=512):
            watch.lap("data")
            loss = nn.functional.mse_loss(model(user, item), rating)
            watch.lap("forward")
            optimizer.zero_grad()
            loss.backward()
            watch.lap("backward")
            optimizer.step()  # <- cause
            watch.lap("optimizer")
            going = watch.step()
            if not going:
                break
    watch.report()


main()
