"""pytorch_tabnet's fit: an augmentation swaps columns between rows one by one before each batch is used."""
# expects: input_bound
# package: pytorch_tabnet

import warnings

import numpy as np
import torch
from planted import PLANTED, Clock
from pytorch_tabnet.callbacks import Callback
from pytorch_tabnet.tab_model import TabNetRegressor


class Stop(Exception):
    pass


class Count(Callback):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_batch_end(self, batch, logs=None):
        if not self.clock.step():
            raise Stop


class SwapNoise:
    def _set_seed(self):  # asked for by fit()
        np.random.seed(0)

    def __init__(self, share):
        self.share = share

    def __call__(self, x, y):
        return (self.swap(x), y) if PLANTED else (x, y)

    def swap(self, x):
        rows, columns = x.shape
        for column in range(columns):
            for row in np.flatnonzero(np.random.rand(rows) < self.share):
                x[row, column] = x[np.random.randint(rows), column]  # <- cause
        return x


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock = Clock()
    x = np.random.default_rng(0).normal(size=(20_000, 16)).astype("float32")
    model = TabNetRegressor(n_d=64, n_a=64, n_steps=5, verbose=0, device_name="cpu")
    noise = SwapNoise(0.9)
    try:
        model.fit(
            x, x[:, :1], max_epochs=100_000, patience=0, batch_size=512, virtual_batch_size=256,
            augmentations=noise, callbacks=[Count(clock)],
        )  # fmt: skip
    except Stop:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
