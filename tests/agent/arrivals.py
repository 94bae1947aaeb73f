"""A training into which exceptions arrive from outside, at random moments; prints as JSON how many were raised.

Its arguments: what raises them (a key of ARRIVALS), and how many arrive.
"""

import collections
import ctypes
import gc
import json
import random
import signal
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.zeros(8, 4))
model = torch.nn.Linear(4, 2)
drawn = random.Random(7)
epochs = []


class Late(TimeoutError):
    """What the handlers raise."""


class Worded(Exception):
    """A class that sets its message; another thread sets it."""

    def __init__(self):
        super().__init__("late")


def plain(signum, frame):
    raise Late("late")


def epoch():
    """A new loader, a new optimizer, two steps; and now and then a collection that is long enough for a marker."""
    torch.set_grad_enabled(True)  # an exception in a step may leave it off, as in plain torch
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for (batch,) in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    epochs.append(True)
    if len(epochs) % 5 == 0:
        garbage = [[number] for number in range(100_000)]
        garbage.append(garbage)
        del garbage
        gc.collect()


def by_handler(handler):
    """Train until a signal has arrived."""
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, drawn.uniform(0.0001, 0.004))
    while signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        epoch()


def by_thread(main):
    """Train until another thread has set an exception in this one."""

    def set_one():
        time.sleep(drawn.uniform(0.0001, 0.004))
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(Worded))
        done.append(True)

    done = []
    threading.Thread(target=set_one).start()
    while not done:
        epoch()


ARRIVALS = {
    "plain": (by_handler, plain, Late),
    "c": (by_handler, collections.OrderedDict().move_to_end, KeyError),
    "thread": (by_thread, threading.get_ident(), Worded),
}


def is_raised(arrive, argument, kind):
    """True if what arrives is raised in the training."""
    try:
        arrive(argument)
        time.sleep(0.001)
    except kind:
        return True
    return False


def main():
    """All arrivals."""
    printed = []
    sys.unraisablehook = printed.append
    for _ in range(3):  # torch keeps any error to itself of what it imports first
        epoch()
    raised = sum(is_raised(*ARRIVALS[sys.argv[1]]) for _ in range(int(sys.argv[2])))
    print(json.dumps([raised, len(printed)]))


if __name__ == "__main__":
    main()
