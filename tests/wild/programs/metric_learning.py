"""pytorch-metric-learning with its sampler and miner: after each step a gallery is ranked in Python."""
# expects: side_work
# package: pytorch_metric_learning

import torch
from planted import PLANTED, Clock
from pytorch_metric_learning import losses, miners, samplers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Gallery:
    def __init__(self, size):
        self.rows = torch.randn(size, 16).tolist()

    def rank(self, query):
        ranked = []
        for row in self.rows:
            ranked.append(sum((a - b) ** 2 for a, b in zip(row, query, strict=True)))  # <- cause
        return sorted(ranked)[:5]


def main():
    torch.set_num_threads(1)
    clock = Clock()
    labels = torch.arange(4000) % 40
    data = TensorDataset(torch.randn(4000, 64), labels)
    net = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 16))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    loss_of, miner = losses.TripletMarginLoss(), miners.MultiSimilarityMiner()
    gallery = Gallery(2500)
    sampler = samplers.MPerClassSampler(labels, m=4, batch_size=64, length_before_new_iter=4000)
    while True:
        for x, y in DataLoader(data, batch_size=64, sampler=sampler, drop_last=True):
            embedded = net(x)
            loss = loss_of(embedded, y, miner(embedded, y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if PLANTED:
                gallery.rank(embedded[0].tolist())
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
