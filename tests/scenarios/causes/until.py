"""What planted leaks and causes share: their arguments, and steps for some seconds."""

import argparse
import json
import time

import torch
from torch import nn


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", help="that of a script of several")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--fixed", action="store_true", help="the same training without its fault")
    torch.set_num_threads(1)
    return parser.parse_args()


def steps(seconds):
    """The numbers of the steps until then."""
    begin = time.perf_counter()
    print("training", flush=True)
    number = 0
    while time.perf_counter() < begin + seconds:
        yield number
        number += 1
    step_ms = 1000 * (time.perf_counter() - begin) / number
    print(json.dumps({"steps": number, "step_ms": step_ms, "shares": {}}), flush=True)


def endless(loader):
    """Its batches, epoch after epoch."""
    while True:
        yield from loader


def small_model(wide=256, layers=12):
    """Enough operations that what their graph holds shows."""
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(wide, wide), nn.Tanh())))
