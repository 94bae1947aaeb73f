"""Keras on torch, model.fit: a callback writes statistics of every weight after each batch."""
# expects: side_work
# package: keras

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from planted import PLANTED, Clock


class Statistics(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.clock = Clock()

    def on_train_batch_end(self, batch, logs=None):
        if PLANTED:
            self.write()
        self.model.stop_training = not self.clock.step()
        if self.model.stop_training:
            raise StopIteration

    def write(self):
        for weight in self.model.weights:
            values = keras.ops.convert_to_numpy(weight)
            np.quantile(values, [0.1, 0.25, 0.5, 0.75, 0.9])  # <- cause


def main():
    torch.set_num_threads(1)
    layers = [keras.layers.Dense(300, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    x = np.random.default_rng(0).normal(size=(50_000, 64)).astype("float32")
    statistics = Statistics()
    try:
        model.fit(x, x[:, :1], batch_size=64, epochs=1000, verbose=0, callbacks=[statistics])
    except StopIteration:
        pass
    statistics.clock.tell()


if __name__ == "__main__":
    main()
