"""The norm of every gradient is fetched as a Python number between backward and update."""
# expects: side_work

import torch
from laps import Laps, options
from torch import nn

BLOCKS = 60


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(BLOCKS))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x.mean(dim=1)


def gradient_report(model):
    report = {}
    for name, parameter in model.named_parameters():
        ordered = parameter.grad.flatten().sort().values  # <- cause
        report[name] = (parameter.grad.norm().item(), ordered[len(ordered) // 2].item())  # <- cause
    return report


def main():
    args = options()
    model = Narrow()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)
    inputs, targets = torch.randn(2048, 48), torch.randn(2048)
    watch = Laps(args.seconds)
    step = 0
    while True:
        part = slice(64 * (step % 32), 64 * (step % 32) + 64)
        x, y = inputs[part], targets[part]
        watch.lap("data")
        loss = nn.functional.mse_loss(model(x), y)
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        if not args.fixed:
            gradient_report(model)
        watch.lap("other")
        optimizer.step()
        watch.lap("optimizer")
        step += 1
        if not watch.step():
            break
    watch.report()


main()
