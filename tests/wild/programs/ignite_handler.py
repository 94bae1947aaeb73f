"""ignite's Engine: a handler computes a histogram of gradients in plain Python after each iteration."""
# expects: side_work
# package: ignite

import torch
from ignite.engine import Engine, Events
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def main():
    clock = Clock()
    net = nn.Sequential(nn.Linear(100, 500), nn.Tanh(), nn.Linear(500, 500), nn.Tanh(), nn.Linear(500, 5))
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4)

    def update(engine, batch):
        x, y = batch
        net.train()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(update)

    @trainer.on(Events.ITERATION_COMPLETED)
    def after(engine):
        if PLANTED:
            histogram(net)
        if not clock.step():
            engine.terminate()

    data = TensorDataset(torch.randn(20_000, 100), torch.randint(0, 5, (20_000,)))
    batches = BatchSampler(RandomSampler(data), batch_size=64, drop_last=True)
    trainer.run(DataLoader(data, batch_size=None, sampler=batches), max_epochs=1000)
    clock.report()


def histogram(net):
    bins = [0] * 20
    for value in net[0].weight.grad.flatten()[:30_000].tolist():
        bins[int(abs(value) * 1e4) % 20] += 1  # <- cause
    return bins


if __name__ == "__main__":
    main()
