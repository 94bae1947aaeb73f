"""A closed-form continuous-time network (ncps) on series: the two workers smooth each window by hand."""
# expects: input_bound
# package: ncps

import numpy as np
import torch
from ncps.torch import CfC
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset


def smoothed(window):
    levels = np.empty_like(window)
    for channel in range(window.shape[1]):
        level = window[0, channel]
        for t, value in enumerate(window[:, channel]):
            level += 0.2 * (value - level)  # <- cause
            levels[t, channel] = level  # <- cause
    return levels


class Windows(Dataset):
    def __init__(self):
        self.series = np.random.default_rng(0).normal(size=(20_000, 8)).cumsum(0).astype("float32")

    def __len__(self):
        return len(self.series) - 245

    def __getitem__(self, first):
        window = self.series[first : first + 240]
        if PLANTED:
            window = smoothed(window)
        return torch.tensor(window[-20:]), torch.tensor(self.series[first + 241])


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = nn.ModuleDict({"cell": CfC(8, 96, return_sequences=False), "head": nn.Linear(96, 8)})
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    loader = DataLoader(Windows(), batch_size=128, shuffle=True, num_workers=2)
    going = True
    while going:
        for windows, targets in loader:
            loss = nn.functional.l1_loss(model["head"](model["cell"](windows)[0]), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            going = clock.step()
            if not going:
                break
    clock.tell()


if __name__ == "__main__":
    main()
