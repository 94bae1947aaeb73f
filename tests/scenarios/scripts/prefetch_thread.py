"""A thread prepares batches one ahead, and is too slow."""
# expects: input_bound/hand_rolled_loader

import contextlib
import queue
import threading
import time

import torch
from laps import fit, options
from torch import nn


class Prefetcher(threading.Thread):
    def __init__(self, delay_s):
        super().__init__(daemon=True, name="prefetcher")
        self.delay_s = delay_s
        self.stopping = False
        self.ready = queue.Queue(2)

    def run(self):
        while not self.stopping:
            self.ready.put(self.read())

    def stop(self):
        self.stopping = True
        while self.is_alive():
            with contextlib.suppress(queue.Empty):
                self.ready.get(timeout=0.1)

    def read(self):
        time.sleep(self.delay_s)  # <- cause
        return torch.randn(128, 64), torch.randint(6, (128,))


def main():
    args = options()
    batches = Prefetcher(0.001 if args.fixed else 0.03)
    batches.start()
    net = nn.Sequential(nn.Linear(64, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 6))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    fit(args, optimizer, iter(batches.ready.get, None), lambda x, y: nn.functional.cross_entropy(net(x), y))
    batches.stop()


main()
