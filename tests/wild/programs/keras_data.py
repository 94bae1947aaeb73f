"""Keras on torch with a PyDataset: each batch is augmented by numpy, row by row."""
# expects: input_bound
# package: keras

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from planted import PLANTED, Clock


class Waves(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.rows = np.random.default_rng(0).normal(size=(5000, 128)).astype("float32")

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        begin = index * 32 % 4096
        x = self.rows[begin : begin + 32].copy()
        if PLANTED:
            self.augment(x)
        return x, x[:, :1]

    def augment(self, x):
        for row in x:
            for _ in range(8):
                row += np.convolve(row, np.hanning(31), "same").astype("float32") * 1e-3  # <- cause


class Stop(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.clock = Clock()

    def on_train_batch_end(self, batch, logs=None):
        if not self.clock.step():
            raise StopIteration


def main():
    layers = [keras.layers.Dense(400, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((128,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(1e-3), loss="mse")
    stop = Stop()
    try:
        model.fit(Waves(), epochs=1, verbose=0, callbacks=[stop])
    except StopIteration:
        pass
    stop.clock.report()


if __name__ == "__main__":
    main()
