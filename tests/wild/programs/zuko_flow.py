"""A zuko flow in a loop of one's own: a thread that watches the run keeps sorting the losses in Python."""
# expects: gil_contention
# package: zuko

import threading
import time

import torch
import zuko
from planted import PLANTED, Clock


class Watcher:
    def __init__(self):
        self.losses = [1.0]
        self.ranks = {}
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            if PLANTED:
                self.rank()
            else:
                time.sleep(0.1)

    def rank(self):
        latest = self.losses[-300:]
        for value in latest:
            self.ranks[value] = sum(1 for other in latest if other < value)  # <- cause
        self.ranks.clear()


def main():
    torch.set_num_threads(1)
    clock = Clock()
    watcher = Watcher()
    flow = zuko.flows.MAF(features=8, transforms=3, hidden_features=(48, 48))
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    points = torch.randn(4096, 8)
    while True:
        batch = points[torch.randint(0, len(points), (128,))]
        loss = -flow().log_prob(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watcher.losses.append(float(loss))
        del watcher.losses[:-1000]
        if not clock.step():
            return clock.tell()


if __name__ == "__main__":
    main()
