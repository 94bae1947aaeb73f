"""neuralforecast's NHITS through Lightning: a callback sums up how each weight matrix moved, number by number."""
# expects: side_work
# package: neuralforecast

import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback
from neuralforecast import NeuralForecast
from neuralforecast.models import NHITS
from planted import PLANTED, Clock

CLOCK = Clock()


class Movement(Callback):
    """Keeps a histogram of the first layer's weights."""

    def __init__(self):
        self.bins = {}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if PLANTED:
            for weights in list(module.parameters())[:4]:
                self.count(weights)
        if not CLOCK.step():
            trainer.should_stop = True

    def count(self, weights):
        for value in weights.detach().flatten().tolist():
            name = f"{value:.2f}"  # <- cause
            self.bins[name] = self.bins.get(name, 0) + 1  # <- cause


def main():
    torch.set_num_threads(1)
    days = pd.date_range("2020-01-01", periods=600, freq="D")
    noise = np.random.default_rng(0).normal(size=(32, 600)).cumsum(1)
    table = pd.concat(pd.DataFrame({"unique_id": f"s{i}", "ds": days, "y": row}) for i, row in enumerate(noise))
    model = NHITS(
        h=12, input_size=96, max_steps=100_000, batch_size=32, windows_batch_size=512, callbacks=[Movement()],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
    )  # fmt: skip
    NeuralForecast(models=[model], freq="D").fit(table)
    CLOCK.tell()


if __name__ == "__main__":
    main()
