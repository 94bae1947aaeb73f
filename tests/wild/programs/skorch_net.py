"""skorch's NeuralNetRegressor: the data set's rows are interpolated in a Python loop."""
# expects: input_bound
# package: skorch

import torch
from planted import PLANTED, Clock
from skorch import NeuralNetRegressor
from skorch.callbacks import Callback
from torch import nn
from torch.utils.data import Dataset


class Series(Dataset):
    def __init__(self):
        self.rows = torch.randn(2000, 200)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return (self.filled(row) if PLANTED else row), row[:1]

    def filled(self, row):
        values = row.tolist()
        for _ in range(10):
            for i in range(1, len(values)):
                values[i] = 0.5 * (values[i - 1] + values[i])  # <- cause
        return torch.tensor(values)


class Stop(Callback):
    def __init__(self, clock):
        self.clock = clock

    def on_batch_end(self, net, training=False, **_):
        if not self.clock.step():
            raise KeyboardInterrupt


def main():
    torch.set_num_threads(1)
    clock = Clock()
    module = nn.Sequential(nn.Linear(200, 800), nn.ReLU(), nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 1))
    net = NeuralNetRegressor(
        module, max_epochs=1000, batch_size=64, train_split=None, verbose=0, lr=1e-4, callbacks=[Stop(clock)]
    )
    net.fit(Series(), y=None)
    clock.tell()


if __name__ == "__main__":
    main()
