"""Trains a Keras 1-D CNN on sensor records; planted: the dataset parses the JSON text of every record in each epoch."""

# expects: input_bound
# package: keras
import json
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras import layers
from planted import PLANTED, Clock

BATCH_SIZE = 16
LENGTH = 512
CHANNELS = 4
CLASSES = 6


def make_records(count):
    rng = np.random.default_rng(0)
    records = []
    for _ in range(count):
        signal = rng.normal(size=(LENGTH, CHANNELS)).round(4)
        records.append(json.dumps({"signal": signal.tolist(), "label": int(rng.integers(CLASSES))}))
    return records


def parse(record):
    fields = json.loads(record)  # <- cause
    return np.asarray(fields["signal"], dtype="float32"), fields["label"]  # <- cause


class SensorData(keras.utils.PyDataset):
    def __init__(self, records, in_memory, **kwargs):
        super().__init__(**kwargs)
        self.records = records
        self.cache = None
        if in_memory:
            pairs = [parse(record) for record in records]
            self.cache = np.stack([x for x, _ in pairs]), np.array([y for _, y in pairs])

    def __len__(self):
        return len(self.records) // BATCH_SIZE

    def __getitem__(self, index):
        part = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        if self.cache is not None:
            return self.cache[0][part], self.cache[1][part]
        pairs = [parse(record) for record in self.records[part]]
        return np.stack([x for x, _ in pairs]), np.array([y for _, y in pairs])


class ClockCallback(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.clock = Clock()

    def on_train_batch_end(self, batch, logs=None):
        if not self.clock.step():
            self.model.stop_training = True


def build_model():
    inputs = keras.Input((LENGTH, CHANNELS))
    x = layers.Conv1D(32, 7, strides=2, padding="same", activation="relu")(inputs)
    x = layers.Conv1D(64, 5, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv1D(96, 3, padding="same", activation="relu")(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dense(64, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(CLASSES)(x))


def main():
    torch.set_num_threads(1)
    keras.utils.set_random_seed(0)
    model = build_model()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    data = SensorData(make_records(1024), in_memory=not PLANTED)
    timer = ClockCallback()
    model.fit(data, epochs=100_000, shuffle=False, verbose=0, callbacks=[timer])
    timer.clock.tell()


if __name__ == "__main__":
    main()
