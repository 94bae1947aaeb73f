"""deepxde solves a differential equation: a callback integrates the solution by hand after every step."""
# expects: side_work
# package: deepxde

import os
from itertools import pairwise

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde
import numpy as np
import torch
from planted import PLANTED, Clock


class Stop(Exception):
    pass


class Integral(deepxde.callbacks.Callback):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.grid = np.linspace(-1, 1, 200)[:, None].astype("float32")
        self.values = []

    def on_batch_end(self):
        if PLANTED:
            self.values.append(self.integrate())
        if not self.clock.step():
            raise Stop

    def integrate(self):
        heights = self.model.predict(self.grid)
        return sum(float(a[0] + b[0]) / 2 for _ in range(60) for a, b in pairwise(heights))  # <- cause


def equation(x, y):
    return deepxde.grad.hessian(y, x) + np.pi**2 * torch.sin(np.pi * x)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    line = deepxde.geometry.Interval(-1, 1)
    edge = deepxde.icbc.DirichletBC(line, lambda x: 0 * x, lambda _, on_boundary: on_boundary)
    data = deepxde.data.PDE(line, equation, edge, num_domain=600, num_boundary=2)
    model = deepxde.Model(data, deepxde.nn.FNN([1, 64, 64, 64, 1], "tanh", "Glorot uniform"))
    model.compile("adam", lr=1e-3, verbose=0)
    try:
        model.train(iterations=1_000_000, display_every=1_000_000, callbacks=[Integral(clock)], verbose=0)
    except Stop:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
