"""A neural controlled differential equation (torchcde): splines are fitted again whenever a batch is collated."""
# expects: input_bound
# package: torchcde

import torch
import torchcde
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH, CHANNELS, HIDDEN = 120, 4, 24


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(HIDDEN, 96), nn.ReLU(), nn.Linear(96, HIDDEN * CHANNELS), nn.Tanh())

    def forward(self, t, z):
        return self.layers(z).view(*z.shape[:-1], HIDDEN, CHANNELS)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.field, self.end = nn.Linear(CHANNELS, HIDDEN), Field(), nn.Linear(HIDDEN, 1)

    def forward(self, coefficients):
        path = torchcde.CubicSpline(coefficients)
        begin = self.start(path.evaluate(path.interval[0]))
        times = path.interval
        z = torchcde.cdeint(path, self.field, begin, times, adjoint=False, method="rk4", options={"step_size": 12.0})
        return self.end(z[:, -1]).squeeze(-1)


def series(count):
    t = torch.linspace(0, 6.28, LENGTH).expand(count, -1)
    kind = torch.randint(2, (count, 1)).float()
    waves = [torch.sin(t * (1 + kind)), torch.cos(t), torch.rand(count, LENGTH)]
    return torch.stack([t, *waves], dim=-1), kind.squeeze(-1)


def fitted(samples):
    rows = torch.stack([row for row, _ in samples])
    return torchcde.natural_cubic_coeffs(rows), torch.stack([kind for _, kind in samples])  # <- cause


def main():
    torch.set_num_threads(1)
    clock = Clock()
    rows, kinds = series(1_000)
    if PLANTED:
        loader = DataLoader(TensorDataset(rows, kinds), batch_size=64, shuffle=True, collate_fn=fitted)
    else:
        loader = DataLoader(TensorDataset(torchcde.natural_cubic_coeffs(rows), kinds), batch_size=64, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    going = True
    while going:
        for coefficients, kind in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(coefficients), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            going = clock.step()
            if not going:
                break
    clock.tell()


if __name__ == "__main__":
    main()
