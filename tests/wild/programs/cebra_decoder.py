"""CEBRA's contrastive embedding of neural recordings: its callback decodes by nearest neighbours, row by row."""
# expects: side_work
# package: cebra

import cebra
import numpy as np
import torch
from planted import PLANTED, Clock


class Done(Exception):
    pass


class Decoder:
    def __init__(self, recordings, positions):
        self.clock = Clock()
        self.recordings, self.positions = recordings, positions

    def __call__(self, step, solver):
        if PLANTED and step % 2 == 0:
            self.error = self.decoded(self.recordings[:400], self.positions[:400])
        if not self.clock.step():
            raise Done

    def decoded(self, points, positions):
        errors = []
        for row, point in enumerate(points):
            distances = [float(((point - other) ** 2).sum()) for other in points[::10]]  # <- cause
            nearest = sorted(range(len(distances)), key=distances.__getitem__)[1:6]
            errors.append(abs(positions[row] - positions[::10][nearest].mean()))
        return sum(errors) / len(errors)


def main():
    torch.set_num_threads(1)
    chance = np.random.default_rng(0)
    positions = chance.normal(size=1500).cumsum().astype("float32")
    recordings = np.stack([np.sin(positions / n) for n in range(1, 61)], 1).astype("float32")
    decoder = Decoder(recordings, positions)
    model = cebra.CEBRA(
        model_architecture="offset10-model", batch_size=256, max_iterations=10_000_000, time_offsets=10,
        num_hidden_units=96, output_dimension=8, device="cpu", verbose=False,
    )  # fmt: skip
    try:
        model.fit(recordings, positions[:, None], callback=decoder, callback_frequency=1)
    except Done:
        pass
    decoder.clock.tell()


if __name__ == "__main__":
    main()
