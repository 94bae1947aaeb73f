"""Many small training processes: ``ranks.py RANKS THREADS SECONDS [EACH]``, each taking ten steps a second.

The ranks are forked after torch has been imported, and share its memory: 64 of them fit a small machine. With EACH a
rank ends after so many seconds, and another one takes its place.
"""

from __future__ import annotations

import os
import sys
import threading
import time

os.environ |= {"RANK": "0", "WORLD_SIZE": sys.argv[1]}  # before torch comes: its hooks read them then

import torch

STEP_S = 0.1


def wait(depth: int) -> None:
    """Idle at the bottom of a stack of usual depth."""
    if depth:
        wait(depth - 1)
    else:
        threading.Event().wait()


def train(threads: int, seconds: float) -> None:
    """Step until the time is over, with idle threads beside it."""
    for _ in range(threads - 1):
        threading.Thread(target=wait, args=(10,), daemon=True).start()
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(STEP_S)
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()


def begin(rank: int, threads: int, seconds: float) -> int:
    """Fork a rank; returns its pid."""
    pid = os.fork()
    if not pid:
        os.environ["RANK"] = str(rank)
        train(threads, seconds)
        os._exit(0)
    return pid


def rotate(ranks: int, threads: int, seconds: float, each_s: float) -> None:
    """Begin a rank whenever there is room for one, evenly spread over the time that each lives."""
    until_s, living = time.monotonic() + seconds, {}
    while time.monotonic() < until_s:
        if len(living) < ranks:
            rank = min(set(range(ranks)) - set(living.values()))
            living[begin(rank, threads, each_s)] = rank
            time.sleep(each_s / ranks)
        else:
            living.pop(os.wait()[0], None)
    for _ in living:
        os.wait()


def main() -> None:
    """The first rank forks the others."""
    ranks, threads, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports seconds' worth, here once for all ranks
    if len(sys.argv) > 4:
        rotate(ranks, threads, seconds, float(sys.argv[4]))
        return
    others = [begin(rank, threads, seconds) for rank in range(1, ranks)]
    train(threads, seconds)
    for pid in others:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
