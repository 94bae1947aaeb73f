"""poutyne's Model.fit_generator: a callback writes a histogram of all weights after every batch."""
# expects: side_work
# package: poutyne

import torch
from planted import PLANTED, Clock
from poutyne import Callback, Model
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Stop(Exception):
    pass


class Count(Callback):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_batch_end(self, batch_number, logs):
        if not self.clock.step():
            raise Stop


class Histograms(Callback):
    def __init__(self):
        super().__init__()
        self.rows = []

    def on_train_batch_end(self, batch_number, logs):
        for parameter in self.model.network.parameters():
            for edges in range(3, 24):
                self.rows.append(torch.histc(parameter.detach(), bins=edges))  # <- cause
        del self.rows[:-50]


def main():
    torch.set_num_threads(1)
    clock = Clock()
    network = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 5))
    model = Model(network, torch.optim.SGD(network.parameters(), lr=1e-3), "cross_entropy")
    rows = TensorDataset(torch.randn(8000, 40), torch.randint(0, 5, (8000,)))
    # whole batches: item by item the loader would take a fifth of each step
    loader = DataLoader(rows, batch_size=None, sampler=BatchSampler(RandomSampler(rows), 256, drop_last=True))
    callbacks = [Count(clock), *([Histograms()] if PLANTED else [])]
    try:
        model.fit_generator(loader, epochs=1_000_000, callbacks=callbacks, verbose=False)
    except Stop:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
