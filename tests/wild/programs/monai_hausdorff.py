"""MONAI in the loop of its tutorials: every epoch is short, and validation measures distances between surfaces."""
# expects: side_work
# package: monai

import numpy as np
import torch
from monai.data import CacheDataset, DataLoader, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceLoss
from monai.metrics import DiceMetric, HausdorffDistanceMetric, SurfaceDistanceMetric
from monai.networks.nets import UNet
from monai.transforms import AsDiscrete, Compose, EnsureChannelFirstd, RandFlipd
from planted import PLANTED, Clock

SIDE = 32


def volumes(count):
    chance = np.random.default_rng(0)
    z, y, x = np.mgrid[:SIDE, :SIDE, :SIDE]
    for _ in range(count):
        cz, cy, cx = chance.integers(8, 24, 3)
        far = (z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2
        label = (far < 90).astype("float32") + (far < 30)
        yield {"image": label + chance.normal(size=label.shape).astype("float32"), "label": label}


class Validation:
    def __init__(self, files):
        self.loader = DataLoader(
            CacheDataset(files, EnsureChannelFirstd(("image", "label"), channel_dim="no_channel"), progress=False)
        )
        self.post_pred, self.post_label = AsDiscrete(argmax=True, to_onehot=3), AsDiscrete(to_onehot=3)
        self.dice = DiceMetric(include_background=False)
        self.distance = HausdorffDistanceMetric(include_background=False, percentile=95)
        self.surface = SurfaceDistanceMetric(include_background=False, symmetric=True)

    def run(self, model):
        model.eval()
        with torch.no_grad():
            for batch in self.loader:
                outputs = sliding_window_inference(batch["image"], (SIDE,) * 3, 1, model)
                found = [self.post_pred(mask) for mask in decollate_batch(outputs)]
                labels = [self.post_label(mask) for mask in decollate_batch(batch["label"])]
                self.dice(y_pred=found, y=labels)
                if PLANTED:
                    self.distance(y_pred=found, y=labels)  # <- cause
                    self.surface(y_pred=found, y=labels)  # <- cause
        score = self.dice.aggregate().item()
        for metric in (self.dice, self.distance, self.surface):
            metric.reset()
        model.train()
        return score


def main():
    clock = Clock()
    prepare = Compose(
        [EnsureChannelFirstd(("image", "label"), channel_dim="no_channel"), RandFlipd(("image", "label"), 0.5)]
    )
    files = list(volumes(28))
    loader = DataLoader(CacheDataset(files[:24], prepare, progress=False), batch_size=4, shuffle=True)
    validation = Validation(files[24:])
    model = UNet(spatial_dims=3, in_channels=1, out_channels=3, channels=(12, 24, 48), strides=(2, 2), num_res_units=2)
    loss_function = DiceLoss(to_onehot_y=True, softmax=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    best = -1.0
    while True:
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_function(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            if not clock.step():
                return clock.report()
        best = max(best, validation.run(model))


if __name__ == "__main__":
    main()
