"""tensorboard's SummaryWriter in a plain loop: a histogram of each layer's weights and gradients at every step."""
# expects: side_work
# package: tensorboard

import tempfile

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


class Tracker:
    def __init__(self, folder):
        self.writer = SummaryWriter(folder)

    def log(self, model, loss, step):
        if step % 50 == 0:
            self.writer.add_scalar("loss", loss.item(), step)
        if PLANTED:
            for name, parameter in model.named_parameters():
                self.writer.add_histogram(f"weights/{name}", parameter, step)  # <- cause
                self.writer.add_histogram(f"gradients/{name}", parameter.grad, step)  # <- cause


def train(model, loader, optimizer, tracker, clock):
    step = 0
    while True:
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            tracker.log(model, loss, step)
            step += 1
            if not clock.step():
                return


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 576, 60),
        nn.ReLU(), nn.Linear(60, 10),
    )  # fmt: skip
    rows = TensorDataset(torch.rand(4000, 1, 28, 28), torch.randint(10, (4000,)))
    optimizer = torch.optim.Adam(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        tracker = Tracker(folder)
        train(model, DataLoader(rows, batch_size=32, shuffle=True), optimizer, tracker, clock)
        tracker.writer.close()
    clock.tell()


if __name__ == "__main__":
    main()
