"""Trains a policy and value net for Othello; planted: a thread writes its whole learning curves to a file as JSON."""

# expects: gil_contention
# package: torch
import json
import tempfile
import threading
from pathlib import Path

import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class OthelloNet(nn.Module):
    def __init__(self, channels=32, blocks=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU())
        self.tower = nn.Sequential(*(ResBlock(channels) for _ in range(blocks)))
        self.policy = nn.Sequential(nn.Conv2d(channels, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 65))
        self.value = nn.Sequential(
            nn.Conv2d(channels, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, boards):
        hidden = self.tower(self.stem(boards))
        return self.policy(hidden), self.value(hidden).tanh().squeeze(1)


class Positions:
    """Those of recent games, with what a search found."""

    def __init__(self, count=20_000):
        cells = torch.randint(3, (count, 8, 8))
        self.boards = torch.stack([cells == 1, cells == 2, torch.rand(count, 8, 8) < 0.15], dim=1).float()
        self.moves = torch.distributions.Dirichlet(torch.full((65,), 0.3)).sample((count,))
        self.winner = torch.sign(self.boards[:, 0].sum((1, 2)) - self.boards[:, 1].sum((1, 2)))

    def sample(self, count):
        index = torch.randint(len(self.winner), (count,))
        return self.boards[index], self.moves[index], self.winner[index]


class CurvePublisher(threading.Thread):
    """Writes the learning curves a few times per second, for a web page that shows them."""

    def __init__(self, folder, curves, every=0.2):
        super().__init__(daemon=True, name="curves")
        self.folder, self.curves, self.every = Path(folder), curves, every
        self.published = {name: len(values) for name, values in curves.items()}
        self.done = threading.Event()

    def add(self, **values):
        for name, value in values.items():
            self.curves[name].append(value)

    def publish_all(self):
        text = json.dumps(self.curves)  # <- cause
        draft = self.folder / "curves.json.tmp"
        draft.write_text(text)
        draft.replace(self.folder / "curves.json")

    def publish_new(self):
        fresh = {name: values[self.published[name] :] for name, values in self.curves.items()}
        for name, values in fresh.items():
            self.published[name] += len(values)
        with (self.folder / "curves.jsonl").open("a") as file:
            file.write(json.dumps(fresh) + "\n")

    def run(self):
        while not self.done.wait(self.every):
            if PLANTED:
                self.publish_all()
            else:
                self.publish_new()


def resumed_curves(count=70_000):
    """Those of the run that is continued."""
    at = torch.arange(count)
    return {
        "policy_loss": (3 + 1.2 * torch.exp(-at / 2e4) + 0.05 * torch.randn(count)).tolist(),
        "value_loss": (0.4 + 0.6 * torch.exp(-at / 1e4) + 0.05 * torch.randn(count)).tolist(),
        "grad_norm": torch.distributions.Gamma(2.0, 2.0).sample((count,)).tolist(),
    }


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, positions = OthelloNet(), Positions()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        curves = CurvePublisher(folder, resumed_curves())
        curves.start()
        clock = Clock()
        while True:
            boards, moves, winner = positions.sample(64)
            logits, value = net(boards)
            policy_loss = -(moves * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
            value_loss = F.mse_loss(value, winner)
            optimizer.zero_grad()
            (policy_loss + value_loss).backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            curves.add(policy_loss=policy_loss.item(), value_loss=value_loss.item(), grad_norm=norm.item())
            if not clock.step():
                break
        curves.done.set()
        curves.join()
    clock.tell()


if __name__ == "__main__":
    main()
