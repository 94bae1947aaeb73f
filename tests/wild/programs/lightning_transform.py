"""lightning's Trainer: a transform of the data set jitters an image pixel by pixel."""
# expects: input_bound
# package: lightning

import random

import lightning
import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Jitter:
    def __call__(self, image):
        for row in range(8):
            for column in range(8):
                image[row, column] += random.gauss(0, 0.01)  # <- cause
        return image


class Digits(Dataset):
    def __init__(self):
        self.images = torch.rand(4000, 28, 28)
        self.transforms = [Jitter()] if PLANTED else []

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        for transform in self.transforms:
            image = transform(image)
        return image[None], index % 10


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 576, 10)
        )

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Stop(lightning.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = not self.clock.step()


def main():
    torch.set_num_threads(1)
    stop = Stop()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=-1, callbacks=[stop], logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Net(), DataLoader(Digits(), batch_size=32, shuffle=True))
    stop.clock.tell()


if __name__ == "__main__":
    main()
