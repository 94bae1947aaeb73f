"""Two trainings at 99 % of a core each, on two cores: they do not hurt each other."""
# healthy

import multiprocessing
from itertools import repeat

import torch
from laps import fit, options
from torch import nn


def train(number, args):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = nn.LSTM(32, 128, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(32, 24, 32)
    fit(args, optimizer, repeat((x,)), lambda x: model(x)[0].square().mean())


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=train, args=(n, options())) for n in (1, 2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
