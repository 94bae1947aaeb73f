"""Trains a deep autoencoder with the Lightning Trainer; planted: a callback logs each weight's effective rank (SVD)."""

# expects: side_work
# package: lightning
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AutoEncoder(L.LightningModule):
    def __init__(self, features=256, hidden=384, code=64, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(
            nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, code)
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, features)
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        noisy = x + 0.1 * torch.randn_like(x)
        return F.mse_loss(self(noisy), x)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class SpectrumMonitor(L.Callback):
    """Keeps the history of the effective rank of all linear layers, one layer per batch in turn."""

    def __init__(self):
        self.history = {}

    @torch.no_grad()
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        layers = [(n, m) for n, m in pl_module.named_modules() if isinstance(m, nn.Linear)]
        name, layer = layers[batch_idx % len(layers)]
        values = torch.linalg.svdvals(layer.weight)  # <- cause
        p = values / values.sum()
        entropy = -(p * p.clamp_min(1e-12).log()).sum()
        self.history.setdefault(name, []).append(entropy.exp().item())


class ClockCallback(L.Callback):
    def on_train_start(self, trainer, pl_module):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if not self.clock.step():
            trainer.should_stop = True


def main():
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    L.seed_everything(0, verbose=False)

    x = torch.randn(200 * 128, 256)
    loader = DataLoader(TensorDataset(x), batch_size=None, sampler=torch.arange(len(x)).split(128))

    timer = ClockCallback()
    callbacks = [timer]
    if PLANTED:
        callbacks.insert(0, SpectrumMonitor())

    trainer = L.Trainer(
        max_epochs=-1,
        min_epochs=0,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    trainer.fit(AutoEncoder(), loader)
    timer.clock.tell()


if __name__ == "__main__":
    main()
