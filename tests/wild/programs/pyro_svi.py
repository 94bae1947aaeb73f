"""Pyro's SVI on a variational autoencoder: the loop draws and standardises its batches by hand."""
# expects: input_bound
# package: pyro

import pyro
import pyro.distributions as dist
import torch
from planted import PLANTED, Clock
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import Adam
from torch import nn


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 256), nn.Softplus(), nn.Linear(256, 20))
        self.decoder = nn.Sequential(nn.Linear(10, 256), nn.Softplus(), nn.Linear(256, 64))

    def model(self, x):
        pyro.module("decoder", self.decoder)
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Normal(torch.zeros(len(x), 10), 1.0).to_event(1))
            pyro.sample("x", dist.Normal(self.decoder(z), 0.1).to_event(1), obs=x)

    def guide(self, x):
        pyro.module("encoder", self.encoder)
        with pyro.plate("data", len(x)):
            mean, scale = self.encoder(x).chunk(2, 1)
            pyro.sample("z", dist.Normal(mean, scale.exp()).to_event(1))


def draw(rows):
    batch = rows[torch.randint(len(rows), (128,))]
    if PLANTED:
        for row in batch:
            for _ in range(5):
                row -= row.mean()  # <- cause
                row /= row.std()  # <- cause
    return batch


def main():
    torch.set_num_threads(1)
    clock = Clock()
    rows = torch.randn(5000, 64)
    vae = Vae()
    svi = SVI(vae.model, vae.guide, Adam({"lr": 1e-4}), loss=Trace_ELBO())
    while True:
        batch = draw(rows)
        svi.step(batch)
        if not clock.step():
            return clock.tell()


if __name__ == "__main__":
    main()
