"""Two networks with an optimizer each."""
# healthy

from itertools import pairwise

import torch
from laps import Laps, options
from torch import nn


def network(*sizes):
    layers = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def main():
    args = options()
    generator, critic = network(32, 256, 512, 128), network(128, 512, 256, 1)
    g_opt = torch.optim.SGD(generator.parameters(), lr=1e-3)
    c_opt = torch.optim.SGD(critic.parameters(), lr=1e-3)
    judge = nn.BCEWithLogitsLoss()
    real = torch.randn(4096, 128)
    ones, zeros = torch.ones(256, 1), torch.zeros(256, 1)
    watch = Laps(args.seconds)
    while True:
        sample = real[torch.randint(4096, (256,))]
        watch.lap("data")
        fake = generator(torch.randn(256, 32))
        c_loss = judge(critic(sample), ones) + judge(critic(fake.detach()), zeros)
        watch.lap("forward")
        c_opt.zero_grad()
        c_loss.backward()
        watch.lap("backward")
        c_opt.step()
        watch.lap("optimizer")
        g_loss = judge(critic(fake), ones)
        watch.lap("forward")
        g_opt.zero_grad()
        g_loss.backward()
        watch.lap("backward")
        g_opt.step()
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()


main()
