"""torchmetrics beside an own loop: the confusion and AUROC of all batches so far are computed after every step."""
# expects: side_work
# package: torchmetrics

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision


class Learner:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(32, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.scores = MetricCollection([BinaryAUROC(), BinaryAveragePrecision()])
        self.seen = 0

    def learn(self, x, y):
        out = self.net(x)[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(out, y.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if PLANTED:
            self.note(out.detach(), y)

    def note(self, out, y):
        self.scores.update(out.sigmoid(), y)  # <- cause
        self.seen += 1
        self.scores.compute()  # <- cause
        if self.seen % 50 == 0:
            self.scores.reset()


def main():
    torch.set_num_threads(1)
    clock = Clock()
    rows = TensorDataset(torch.randn(20_000, 32), torch.randint(0, 2, (20_000,)))
    learner = Learner()
    while True:
        # whole batches: item by item the loader would take a fifth of the CPU time of each step (measured: 1.26 times)
        for x, y in DataLoader(rows, batch_size=None, sampler=BatchSampler(RandomSampler(rows), 256, drop_last=True)):
            learner.learn(x, y)
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
