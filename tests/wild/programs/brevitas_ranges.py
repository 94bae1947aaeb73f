"""Quantisation-aware training with brevitas: after each step the quantised weights are tallied in a dictionary."""
# expects: side_work
# package: brevitas

import brevitas.nn as qnn
import torch
from planted import PLANTED, Clock
from torch import nn

LEVELS = {}


def tally(layer):
    for level in layer.weight.detach().mul(64).round().flatten().tolist():  # <- cause
        LEVELS[level] = LEVELS.get(level, 0) + 1  # <- cause


def main():
    torch.set_num_threads(2)
    clock = Clock()
    model = nn.Sequential(
        qnn.QuantConv2d(3, 24, 3, weight_bit_width=4), qnn.QuantReLU(bit_width=4), nn.MaxPool2d(2),
        qnn.QuantConv2d(24, 48, 3, weight_bit_width=4), qnn.QuantReLU(bit_width=4), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        qnn.QuantLinear(48 * 16, 128, bias=True, weight_bit_width=4), nn.ReLU(),
        qnn.QuantLinear(128, 10, bias=True, weight_bit_width=4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.rand(2048, 3, 32, 32), torch.randint(0, 10, (2048,))
    going = True
    while going:
        chosen = torch.randint(0, 2048, (32,))
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if PLANTED:
            tally(model[7])
        going = clock.step()
    clock.tell()


if __name__ == "__main__":
    main()
