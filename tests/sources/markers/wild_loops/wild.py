"""Training loops as people write them, each in a process of its own; prints one JSON line per loop with its truth.

Usage: ``python wild.py [NAME ...]``
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from contextlib import suppress

import torch
import torch._dynamo  # the first optimizer of each process would import it

import tuimon

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from timed import Model, Sgd, delayed_s, loader, pause, slow_starter, started, truth, waited

LOOPS = {}


def loop(steps: int):
    """Register a loop that makes this many steps."""

    def register(function):
        LOOPS[function.__name__] = (function, steps)
        return function

    return register


def new():
    model = Model()
    return model, Sgd(model.parameters(), lr=0.1)


@loop(20)
def epochs_with_evaluation():
    model, optimizer = new()
    for _ in range(4):
        model.phase = "forward"
        for x in loader(5):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        model.phase = "eval"
        with torch.no_grad():
            for x in loader(6, phase="eval"):
                model(x).sum()


@loop(20)
def evaluation_with_gradients():
    model, optimizer = new()
    for _ in range(4):
        model.phase = "forward"
        for x in loader(5):
            x.requires_grad_()
            optimizer.zero_grad()
            energy = model(x).sum()
            (force,) = torch.autograd.grad(energy, x, create_graph=True)
            (energy + force.sum()).backward()
            optimizer.step()
        model.phase = "eval"
        for x in loader(6, phase="eval"):
            torch.autograd.grad(model(x.requires_grad_()).sum(), x)
            truth["backward"] -= 0.006
            truth["eval"] += 0.006


@loop(25)
def hand_made_batches():
    model, optimizer = new()

    def get_batch():
        pause("data", 5)
        return torch.ones(4, 4)

    for _ in range(25):
        x = get_batch()
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        pause("other", 2)


@loop(6)
def lbfgs():
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, tolerance_grad=0, tolerance_change=0)
    target = torch.zeros(4, 4)
    for x in loader(6):

        def closure(x=x):
            optimizer.zero_grad()
            loss = ((model(x) - target) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)


@loop(30)
def updated_by_hand():
    model = Model()
    for _ in range(30):  # from backward to backward
        model(torch.ones(4, 4)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None


@loop(15)
def workers_for_each_epoch():
    model, optimizer = new()
    batches = slow_starter(3)
    for epoch in range(5):
        for x in waited(started(batches, "data" if epoch else None)):  # the first is before the first step
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()


@loop(15)
def persistent_workers_and_evaluation():
    model, optimizer = new()
    batches, validation = slow_starter(3, persistent_workers=True), slow_starter(2, persistent_workers=True)
    for epoch in range(5):
        model.phase = "forward"
        for x in waited(started(batches, "data" if epoch else None)):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        model.phase = "eval"
        start, before = time.perf_counter(), truth["eval"]
        with torch.no_grad():
            for x in validation:
                model(x)
        truth["eval"] = before + time.perf_counter() - start


@loop(20)
def survives_errors():
    model, optimizer = new()
    for number, x in enumerate(loader(20)):
        optimizer.zero_grad()
        loss = model(x).sum()
        try:
            if number % 5 == 2:
                loss.sum().backward(torch.ones(3))
        except RuntimeError:
            pass
        loss.backward()
        optimizer.step()


@loop(11)
def told_by_the_user():
    model, optimizer = new()
    for _ in range(11):
        for _ in range(2):
            with tuimon.phase("half"):
                optimizer.zero_grad()
                model(torch.ones(4, 4)).sum().backward()
                optimizer.step()
        tuimon.mark("whole")
        tuimon.step()


#: Loops that run at a time: they sleep most of it.
AT_A_TIME = 2


def main() -> None:
    torch.set_num_threads(1)
    for number, name in enumerate(sys.argv[1:] or LOOPS):
        function, steps = LOOPS[name]
        if number >= AT_A_TIME:
            os.wait()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                truth.clear()
                torch.manual_seed(0)
                tuimon.mark(name)  # a forked child gets its ring with its first marker of consequence
                before_s = delayed_s()
                function()
                told = {"name": name, "pid": os.getpid(), "steps": steps, "truth": truth}
                print(json.dumps({**told, "delayed_s": delayed_s() - before_s}), flush=True)
                code = 0
            except Exception:  # noqa: BLE001  (whatever it was: this child ends here)
                traceback.print_exc()
            finally:
                os._exit(code)
    with suppress(ChildProcessError):
        while os.wait():
            pass


if __name__ == "__main__":
    main()
