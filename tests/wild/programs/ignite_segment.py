"""Trains a segmentation net with ignite; planted: a metric fills a confusion matrix pixel by pixel each step."""

# expects: side_work
# package: ignite
import numpy as np
import torch
from ignite.engine import Engine, Events
from ignite.metrics import Metric
from planted import PLANTED, Clock
from torch import nn

NUM_CLASSES = 5
SIZE = 40
BATCH_SIZE = 8


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class SegNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enc1 = conv_block(3, width)
        self.enc2 = conv_block(width, 2 * width)
        self.mid = conv_block(2 * width, 2 * width)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.dec = conv_block(3 * width, width)
        self.head = nn.Conv2d(width, NUM_CLASSES, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.mid(self.enc2(nn.functional.max_pool2d(e1, 2)))
        return self.head(self.dec(torch.cat([e1, self.up(e2)], dim=1)))


class MeanIoU(Metric):
    def reset(self):
        self.matrix = np.zeros((NUM_CLASSES, NUM_CLASSES), dtype=np.int64)

    def update(self, output):
        logits, target = output
        pred = logits.argmax(dim=1).numpy().ravel()
        truth = target.numpy().ravel()
        for t, p in zip(truth, pred, strict=True):
            self.matrix[t, p] += 1  # <- cause

    def compute(self):
        hits = np.diag(self.matrix)
        union = self.matrix.sum(0) + self.matrix.sum(1) - hits
        return float((hits / np.maximum(union, 1)).mean())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.randn(64, BATCH_SIZE, 3, SIZE, SIZE)
    masks = torch.randint(NUM_CLASSES, (64, BATCH_SIZE, SIZE, SIZE))
    batches = list(zip(images, masks, strict=True))

    model = SegNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def update(engine, batch):
        x, y = batch
        model.train()
        optimizer.zero_grad()
        logits = model(x)
        loss = criterion(logits, y)
        loss.backward()
        optimizer.step()
        return logits.detach(), y

    trainer = Engine(update)
    if PLANTED:
        MeanIoU().attach(trainer, "miou")

    clock = Clock()

    @trainer.on(Events.ITERATION_COMPLETED)
    def tick(engine):
        if not clock.step():
            engine.terminate()

    trainer.run(batches, max_epochs=100_000)
    clock.tell()


if __name__ == "__main__":
    main()
