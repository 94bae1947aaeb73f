"""A large index in memory, and a loop that keeps more and more small objects."""

import gc

import torch
from course import Training

training = Training(ms=3)
training.step(torch.randn(16, 64))  # torch imports much at the first step of an optimizer


def build_index():
    return [{"word": n, "places": [n, n + 1]} for n in range(300_000)]


def train():
    history = []
    while True:
        history.extend([n, [n]] for n in range(40))
        training.step(torch.randn(16, 64))


# <- the code
