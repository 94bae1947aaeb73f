"""torchtuples' Model.fit, with loaders of its own: a callback counts concordant pairs after each epoch."""
# expects: side_work
# package: torchtuples

import numpy as np
import torch
import torchtuples
from planted import PLANTED, Clock
from torch import nn


class Stop(Exception):
    pass


class Count(torchtuples.cb.Callback):
    def __init__(self, clock):
        self.clock = clock

    def on_batch_end(self):
        if not self.clock.step():
            raise Stop


class Concordance(torchtuples.cb.Callback):
    def __init__(self, inputs, targets):
        self.inputs, self.targets, self.scores = inputs, targets, []

    def on_epoch_end(self):
        found = self.model.predict(self.inputs, numpy=True)[:, 0]
        self.scores.append(concordant(found.tolist(), self.targets[:, 0].tolist()))


def concordant(found, truth):
    pairs = right = 0
    for one, of_one in zip(found, truth, strict=True):
        for other, of_other in zip(found, truth, strict=True):
            if of_one < of_other:
                pairs += 1
                right += one < other  # <- cause
    return right / max(1, pairs)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    chance = np.random.default_rng(0)
    x, y = chance.normal(size=(8000, 30)).astype("float32"), chance.normal(size=(8000, 1)).astype("float32")
    net = torchtuples.practical.MLPVanilla(30, [700, 700], 1, batch_norm=False, dropout=0.1)
    model = torchtuples.Model(net, nn.MSELoss(), torchtuples.optim.Adam(1e-3))
    callbacks = [Count(clock), *([Concordance(x[:2500], y[:2500])] if PLANTED else [])]
    try:
        model.fit(x, y, batch_size=512, epochs=100_000, callbacks=callbacks, verbose=False)
    except Stop:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
