"""darts' N-BEATS: a callback collects garbage after every batch, in the hope of saving memory."""
# expects: gc_pauses
# package: darts

import gc

import numpy as np
import pytorch_lightning
import torch
from darts import TimeSeries
from darts.models import NBEATSModel
from planted import PLANTED, Clock


class Stop(pytorch_lightning.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, *_):
        if PLANTED:
            gc.collect()  # <- cause
        trainer.should_stop = not self.clock.step()


def main():
    torch.set_num_threads(1)
    chance = np.random.default_rng(0)
    walks = chance.normal(size=(12, 240)).cumsum(1).astype("float32")
    series = [TimeSeries.from_values(walk) for walk in walks]
    stop = Stop()
    model = NBEATSModel(
        input_chunk_length=48, output_chunk_length=12, num_stacks=4, num_blocks=1, num_layers=3, layer_widths=512,
        batch_size=256, n_epochs=100_000, save_checkpoints=False,
        pl_trainer_kwargs={
            "accelerator": "cpu", "callbacks": [stop], "enable_progress_bar": False, "enable_model_summary": False,
            "logger": False,
        },
    )  # fmt: skip
    model.fit(series)
    stop.clock.tell()


if __name__ == "__main__":
    main()
