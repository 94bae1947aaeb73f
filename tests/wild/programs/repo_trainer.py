"""Trains a small transformer classifier with a Trainer class; planted: per-parameter weight and gradient statistics."""

# expects: side_work
# package: torch
from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from planted import PLANTED, Clock
from torch import nn


@dataclass
class Config:
    vocab_size: int = 1000
    dim: int = 128
    heads: int = 4
    layers: int = 3
    seq_len: int = 32
    classes: int = 10
    batch_size: int = 8
    lr: float = 3e-4
    grad_clip: float = 1.0
    log_every: int = 50
    watch_parameters: bool = False
    seed: int = 0


class Classifier(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab_size, cfg.dim)
        self.position = nn.Parameter(torch.zeros(cfg.seq_len, cfg.dim))
        layer = nn.TransformerEncoderLayer(cfg.dim, cfg.heads, 4 * cfg.dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers)
        self.head = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, tokens):
        hidden = self.encoder(self.embed(tokens) + self.position)
        return self.head(hidden.mean(dim=1))


class RunLogger:
    """Appends one JSON object per line."""

    def __init__(self, path: Path):
        self.file = path.open("w")

    def write(self, step: int, **values):
        self.file.write(json.dumps({"step": step, **values}) + "\n")

    def close(self):
        self.file.close()


def describe(tensor):
    values = tensor.detach().flatten()
    ordered = values.sort().values  # <- cause
    quantiles = [ordered[int(q * (len(ordered) - 1))].item() for q in (0.01, 0.25, 0.5, 0.75, 0.99)]
    return {"std": values.std().item(), "quantiles": quantiles}


class Trainer:
    def __init__(self, cfg: Config, run_dir: Path):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.model = Classifier(cfg)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.logger = RunLogger(run_dir / "metrics.jsonl")
        self.tokens = torch.randint(cfg.vocab_size, (4096, cfg.seq_len))
        self.labels = torch.randint(cfg.classes, (4096,))
        self.step = 0

    def batches(self):
        while True:
            order = torch.randperm(len(self.tokens))
            for index in order.split(self.cfg.batch_size):
                yield self.tokens[index], self.labels[index]

    def train_step(self, tokens, labels):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.criterion(self.model(tokens), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def log(self, loss):
        if self.step % self.cfg.log_every == 0:
            self.logger.write(self.step, loss=loss.item())
        if self.cfg.watch_parameters and self.step % 4 == 0:
            stats = {name: describe(parameter) for name, parameter in self.model.named_parameters()}
            self.logger.write(self.step, parameters=stats)

    def fit(self):
        clock = Clock()
        for tokens, labels in self.batches():
            loss = self.train_step(tokens, labels)
            self.step += 1
            self.log(loss)
            if not clock.step():
                break
        self.logger.close()
        clock.tell()


def main():
    torch.set_num_threads(1)
    cfg = Config(watch_parameters=PLANTED)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(cfg, Path(folder)).fit()


if __name__ == "__main__":
    main()
