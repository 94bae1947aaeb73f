"""pytorch-forecasting's TFT: a metric of its validation draws its bounds from resampled errors."""
# expects: side_work
# package: pytorch_forecasting

import random
import warnings

import lightning
import numpy as np
import pandas
import torch
from planted import PLANTED, Clock
from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.metrics import MAE, MultiHorizonMetric, QuantileLoss

warnings.filterwarnings("ignore")


class BootstrappedError(MultiHorizonMetric):
    def loss(self, y_pred, target):
        errors = (y_pred - target).abs()
        self.bounds = bootstrap(errors.flatten().tolist())
        return errors


def bootstrap(errors):
    means = []
    for _ in range(20_000):
        means.append(sum(random.choices(errors, k=len(errors))))  # <- cause
    return sorted(means)[25], sorted(means)[-25]


class Stop(lightning.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = not self.clock.step()


def frame():
    chance = np.random.default_rng(0)
    series = [
        pandas.DataFrame({"time": np.arange(120), "group": str(i), "value": chance.normal(size=120).cumsum()})
        for i in range(40)
    ]
    return pandas.concat(series, ignore_index=True)


def main():
    torch.set_num_threads(1)
    dataset = TimeSeriesDataSet(
        frame(), time_idx="time", target="value", group_ids=["group"], max_encoder_length=36, max_prediction_length=24,
        time_varying_known_reals=["time"], time_varying_unknown_reals=["value"],
    )  # fmt: skip
    loader = dataset.to_dataloader(train=True, batch_size=12, num_workers=0)
    held_out = TimeSeriesDataSet.from_dataset(dataset, frame(), predict=True)
    model = TemporalFusionTransformer.from_dataset(
        dataset, hidden_size=256, attention_head_size=4, loss=QuantileLoss(), log_interval=-1,
        logging_metrics=[MAE(), BootstrappedError()] if PLANTED else [MAE()],
    )  # fmt: skip
    stop = Stop()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=10_000, callbacks=[stop], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.1, val_check_interval=25,
        num_sanity_val_steps=0, limit_val_batches=3,
    )  # fmt: skip
    trainer.fit(model, loader, held_out.to_dataloader(train=False, batch_size=12, num_workers=0))
    stop.clock.tell()


if __name__ == "__main__":
    main()
