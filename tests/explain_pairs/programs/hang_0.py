"""A thread that reads items, of which one is damaged."""

import threading
from queue import Queue

import torch
from course import Training

queue = Queue(4)


def read_items():
    for _ in range(300):
        yield torch.randn(16, 64)
    raise ValueError("a damaged item")


# <- the code


training = Training()
threading.Thread(target=produce, daemon=True).start()
while (batch := queue.get()) is not None:
    training.step(batch)
