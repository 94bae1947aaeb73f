"""laplace-torch's marginal likelihood training: the loader's collate_fn standardises every row in plain Python."""
# expects: input_bound/slow_collate
# package: laplace

import statistics

import torch
from laplace import marglik_training
from laplace.curvature import BackPackGGN
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Stop(Exception):
    pass


def standardise(rows):
    done = []
    for row in rows.tolist():
        mean, spread = statistics.fmean(row), statistics.pstdev(row)  # <- cause
        done.append([(value - mean) / spread for value in row])  # <- cause
    return torch.tensor(done)


def collate(items):
    rows, targets = zip(*items, strict=True)
    rows = torch.stack(rows)
    return standardise(rows) if PLANTED else rows, torch.stack(targets)


def main():
    torch.set_num_threads(1)
    clock = Clock()

    class Counted(torch.optim.Adam):
        def step(self, closure=None):
            done = super().step(closure)
            if not clock.step():
                raise Stop
            return done

    rows = torch.randn(3000, 60)
    data = TensorDataset(rows, rows[:, :1].sin())
    model = nn.Sequential(nn.Linear(60, 900), nn.Tanh(), nn.Linear(900, 900), nn.Tanh(), nn.Linear(900, 1))
    try:
        marglik_training(
            model, DataLoader(data, batch_size=100, shuffle=True, collate_fn=collate), "regression", "diag",
            BackPackGGN, optimizer_cls=Counted, optimizer_kwargs={"lr": 1e-3}, n_epochs=10_000, marglik_frequency=1000,
        )  # fmt: skip
    except Stop:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
