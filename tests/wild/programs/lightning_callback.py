"""lightning's Trainer: a callback saves the weights after every step."""
# expects: side_work
# package: lightning

import tempfile

import lightning
import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(128, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 1))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x)[:, 0], y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Keep(lightning.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, module, *_):
        if PLANTED:
            self.save(module)
        trainer.should_stop = not self.clock.step()

    def save(self, module):
        for _ in range(3):
            with tempfile.TemporaryFile() as file:
                torch.save(module.state_dict(), file)  # <- cause


def main():
    keep = Keep()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=-1, callbacks=[keep], logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    )  # fmt: skip
    data = TensorDataset(torch.randn(20_000, 128), torch.randn(20_000))
    trainer.fit(Net(), DataLoader(data, batch_size=64))
    keep.clock.report()


if __name__ == "__main__":
    main()
