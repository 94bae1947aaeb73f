"""Several tasks by Jacobian descent (torchjd): after each step, how much do the tasks' gradients conflict?"""
# expects: side_work
# package: torchjd

import itertools

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchjd import autojac
from torchjd.aggregation import MGDA

TASKS = 3


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256))
        self.heads = nn.ModuleList(nn.Linear(256, 1) for _ in range(TASKS))


def conflicts(model, x, targets):
    parameters = list(model.body.parameters())
    losses = task_losses(model, model.body(x), targets)
    rows = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses]  # <- cause
    found = 0
    for first, second in itertools.combinations(rows, 2):
        similar = sum((a * b).sum() for a, b in zip(first, second, strict=True))
        found += int(similar < 0)
    return found


def task_losses(model, features, targets):
    outputs = [head(features).squeeze(-1) for head in model.heads]
    return [nn.functional.mse_loss(output, targets[:, task]) for task, output in enumerate(outputs)]


def main():
    torch.set_num_threads(1)
    clock = Clock()
    x = torch.randn(8_000, 64)
    targets = torch.stack([x[:, :20].sum(1), x[:, 10:40].prod(1), -x[:, 30:].mean(1)], dim=1)
    loader = DataLoader(TensorDataset(x, targets), batch_size=256, shuffle=True)
    model = Heads()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    aggregator = MGDA()
    history = []
    going = True
    while going:
        for batch, wanted in loader:
            features = model.body(batch)
            losses = task_losses(model, features, wanted)
            optimizer.zero_grad()
            autojac.mtl_backward(losses, features=features)
            autojac.jac_to_grad(model.body.parameters(), aggregator)
            optimizer.step()
            if PLANTED:
                history.append(conflicts(model, batch, wanted))
            going = clock.step()
            if not going:
                break
    clock.tell()


if __name__ == "__main__":
    main()
