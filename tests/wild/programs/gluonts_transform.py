"""gluonts' DeepAR: a transformation of its own smooths each series before windows are cut from it."""
# expects: input_bound
# package: gluonts

import tempfile

import lightning
import numpy as np
import pandas
import torch
from gluonts.dataset.common import ListDataset
from gluonts.torch.model.deepar import DeepAREstimator
from gluonts.transform import Chain, MapTransformation
from planted import PLANTED, Clock


class Smoothed(MapTransformation):
    def map_transform(self, data, is_train):
        data["target"] = median(data["target"]) if PLANTED else data["target"]
        return data


def median(values):
    out = values.copy()
    for at in range(3, len(values) - 3):
        out[at] = sorted(values[at - 3 : at + 4])[3]  # <- cause
    return out


class Forecaster(DeepAREstimator):
    def create_transformation(self):
        return Chain([Smoothed(), super().create_transformation()])


class Stop(lightning.pytorch.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = not self.clock.step()


def main():
    torch.set_num_threads(1)
    chance = np.random.default_rng(0)
    start = pandas.Period("2024-01-01", freq="h")
    series = ListDataset([{"start": start, "target": chance.normal(size=600).cumsum()} for _ in range(60)], freq="h")
    stop = Stop()
    forecaster = Forecaster(
        freq="h", prediction_length=24, context_length=48, hidden_size=96, num_layers=2, batch_size=64,
        lags_seq=[1, 2, 24], num_batches_per_epoch=100,
        trainer_kwargs={
            "max_epochs": 100_000, "callbacks": [stop], "accelerator": "cpu", "enable_progress_bar": False,
            "enable_model_summary": False, "logger": False, "default_root_dir": tempfile.mkdtemp(),
        },
    )  # fmt: skip
    forecaster.train_model(series)
    stop.clock.tell()


if __name__ == "__main__":
    main()
