"""A training into which exceptions arrive from outside, at random moments; prints as JSON where they were raised.

Its arguments: what raises them (a key of HANDLERS, ``thread`` or ``worker``), and how many arrive.
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
    """A class that sets its message; threads set it."""

    def __init__(self):
        super().__init__("late")


def plain(signum, frame):
    raise Late("late")


HANDLERS = {"plain": (plain, Late), "c": (collections.OrderedDict().move_to_end, KeyError)}


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


def by_handler(handler, kind):
    """True if the exception of a handler is raised in the training."""
    signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, drawn.uniform(0.0001, 0.004))
        while signal.getitimer(signal.ITIMER_REAL)[0] > 0:
            epoch()
        time.sleep(0.001)
    except kind:
        return True
    return False


class Target:
    """Trains until an exception arrives that another thread sets in it."""

    def __init__(self):
        self.go, self.ready, self.done = (threading.Semaphore(0) for _ in range(3))
        self.is_set, self.raised = False, 0

    def run(self, count):
        """Be the target so many times."""
        for _ in range(count):
            self.go.acquire()
            try:
                self.ready.release()
                while not self.is_set:
                    epoch()
                time.sleep(0.001)
            except Worded:
                self.raised += 1
            self.done.release()

    def hit(self, ident):
        """Set one."""
        self.is_set = False
        self.go.release()
        self.ready.acquire()
        time.sleep(drawn.uniform(0.0001, 0.004))
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Worded))
        self.is_set = True
        self.done.acquire()


def by_thread(count, *, in_worker):
    """How many are raised in the thread in which they are set, and how many in the one that sets them."""
    target, main, elsewhere = Target(), threading.get_ident(), []

    def hit_all(ident):
        for _ in range(count):
            try:
                target.hit(ident)
            except Worded:
                elsewhere.append(True)
                target.done.acquire()

    if in_worker:
        thread = threading.Thread(target=target.run, args=(count,))
        thread.start()
        hit_all(thread.ident)
    else:
        thread = threading.Thread(target=hit_all, args=(main,))
        thread.start()
        target.run(count)
    thread.join()
    return target.raised, len(elsewhere)


def main():
    """All arrivals."""
    how, count = sys.argv[1], int(sys.argv[2])
    printed = []
    sys.unraisablehook = printed.append
    for _ in range(3):  # torch keeps any error to itself of what it imports first
        epoch()
    if how in HANDLERS:
        raised, elsewhere = sum(by_handler(*HANDLERS[how]) for _ in range(count)), 0
    else:
        raised, elsewhere = by_thread(count, in_worker=how == "worker")
    print(json.dumps([raised, elsewhere, len(printed)]))


if __name__ == "__main__":
    main()
