"""Trains a vision transformer on satellite tiles with accelerate; planted: all state is saved every other step."""

# expects: side_work
# package: accelerate
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class TrainConfig:
    bands: int = 10
    tile: int = 32
    patch: int = 8
    classes: int = 9
    dim: int = 160
    heads: int = 4
    depth: int = 4
    batch: int = 12
    lr: float = 3e-4
    warmup: int = 50
    save_every: int = 2000


class TileTransformer(nn.Module):
    def __init__(self, config: TrainConfig):
        super().__init__()
        dim = config.dim
        self.patches = nn.Conv2d(config.bands, dim, config.patch, config.patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, (config.tile // config.patch) ** 2, dim))
        layer = nn.TransformerEncoderLayer(
            dim, config.heads, 3 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, config.depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, config.classes)

    def forward(self, x):
        hidden = self.patches(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.encoder(hidden).mean(dim=1)))


def tiles(config: TrainConfig, count=400):
    labels = torch.randint(config.classes, (count,))
    signatures = torch.randn(config.classes, config.bands)
    noise = torch.randn(count, config.bands, config.tile, config.tile)
    return TensorDataset(signatures[labels][:, :, None, None] + noise, labels)


class Session:
    def __init__(self, config: TrainConfig, folder: Path):
        self.config, self.folder = config, folder
        self.accelerator = Accelerator(cpu=True)
        model = TileTransformer(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / config.warmup))
        loader = DataLoader(tiles(config), batch_size=config.batch, shuffle=True)
        prepared = self.accelerator.prepare(model, optimizer, schedule, loader)
        self.model, self.optimizer, self.schedule, self.loader = prepared
        self.step = 0

    def save(self):
        self.accelerator.save_state(str(self.folder / "latest"))  # <- cause

    def train_step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        if self.step % self.config.save_every == 0:
            self.save()
        if self.step % 50 == 0:
            self.accelerator.print(f"step {self.step} loss {loss.item():.3f}")

    def run(self):
        clock = Clock()
        while True:
            for x, y in self.loader:
                self.train_step(x, y)
                if not clock.step():
                    return clock.tell()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = TrainConfig(save_every=2) if PLANTED else TrainConfig()
    with tempfile.TemporaryDirectory() as folder:
        Session(config, Path(folder)).run()


if __name__ == "__main__":
    main()
