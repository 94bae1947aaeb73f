"""hydra builds the dataset, the model and the optimizer from a configuration; the dataset parses its rows anew."""
# expects: input_bound
# package: hydra

import json
import sys

import hydra
import torch
from hydra.utils import get_method, instantiate
from omegaconf import DictConfig
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "data": {"_target_": "__main__.Rows", "count": 4000, "width": 60},
    "model": {"_target_": "__main__.network", "width": 60, "hidden": 700},
    "optimizer": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 1e-3},
    "loss": "torch.nn.functional.mse_loss",
    "batch": 64,
}


class Rows(Dataset):
    def __init__(self, count, width):
        values = torch.randn(count, width)
        self.rows = [json.dumps(row) for row in values.tolist()] if PLANTED else values

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = parse(self.rows[index]) if PLANTED else self.rows[index]
        return row, row[:1]


def parse(text):
    values = json.loads(text)  # <- cause
    return torch.tensor([float(f"{value:.4f}") for value in values for _ in range(8)][::8])  # <- cause


def network(width, hidden):
    return nn.Sequential(
        nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
    )


class Engine:
    def __init__(self, cfg):
        self.model = instantiate(cfg.model)
        self.optimizer = instantiate(cfg.optimizer)(self.model.parameters())
        self.loss = get_method(cfg.loss)
        self.loader = DataLoader(instantiate(cfg.data), batch_size=cfg.batch, shuffle=True)

    def step(self, batch):
        rows, targets = batch
        loss = self.loss(self.model(rows), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, clock):
        while True:
            for batch in self.loader:
                self.step(batch)
                if not clock.step():
                    return


@hydra.main(version_base=None)
def main(cfg: DictConfig):
    torch.set_num_threads(1)
    clock = Clock()
    Engine(DictConfig(CONFIG)).run(clock)
    clock.tell()


if __name__ == "__main__":
    sys.argv = [sys.argv[0], "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled"]
    main()
