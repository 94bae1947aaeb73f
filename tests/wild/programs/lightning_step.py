"""lightning's Trainer: training_step erases pixels of its batch one by one, called by the optimizer as a closure."""
# expects: input_bound
# package: lightning

import random

import lightning
import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def erase(images):
    return erase_pixels(images) if PLANTED else images


def erase_pixels(images):
    for number in range(images.shape[0]):
        for _ in range(120):
            row, column = random.randrange(28), random.randrange(28)
            images[number, 0, row, column] = 0.0  # <- cause
    return images


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 576, 10)
        )

    def training_step(self, batch, _):
        x, y = batch
        x = erase(x)
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
    rows = TensorDataset(torch.rand(4000, 1, 28, 28), torch.randint(10, (4000,)))
    trainer = lightning.Trainer(
        max_epochs=100_000, callbacks=[stop], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(Net(), DataLoader(rows, batch_size=32))
    stop.clock.tell()


if __name__ == "__main__":
    main()
