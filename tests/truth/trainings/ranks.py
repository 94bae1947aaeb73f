"""A training of some gloo ranks on this machine, one of them late in a known way.

``ranks.py --ranks 4 --late 2 --kind forward --seconds 12``. The ranks are forked once torch is imported, so that
eight of them start in seconds. The late rank prints what was planted: ``{"planted_ms": ..., "step_ms": ...}``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import select
import signal
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

#: Steps between two checkpoints, and between two questions whether to go on.
EVERY = 8
STOPPED_S, RUNNING_S = 0.03, 0.03


class Planted:
    """What makes the rank late, and how long that took."""

    def __init__(self, kind: str, late: bool, late_ms: float) -> None:
        self.kind = kind if late else ""
        self.late_s = late_ms / 1e3
        self.spent_s = 0.0
        self.heap: list[object] = []
        if self.kind == "gc":
            gc.freeze()  # of what torch has made, a collection takes a quarter of a second
            self.heap = [{"n": [n]} for n in range(60_000)]

    def timed(self, work) -> None:  # type: ignore[no-untyped-def]
        """Do it, and add up what it took."""
        begin = time.monotonic()
        work()
        self.spent_s += time.monotonic() - begin

    def compute(self) -> None:
        """Python for as long as the rank is to be late."""
        until = time.monotonic() + self.late_s
        while time.monotonic() < until:  # <- cause data forward backward optimizer jitter
            sum(range(200))  # <- cause data forward backward optimizer jitter


class Numbers(Dataset):  # type: ignore[type-arg]
    """Random rows; decoding them takes the late rank longer."""

    def __init__(self, planted: Planted) -> None:
        self.planted = planted

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 32 == 0:
            if self.planted.kind == "data":
                self.planted.timed(self.planted.compute)
            elif self.planted.kind == "remote":
                self.planted.timed(lambda: select.select([], [], [], self.planted.late_s))  # <- cause remote
        return torch.full((128,), float(index % 7))


class Model(nn.Module):
    def __init__(self, planted: Planted, width: int) -> None:
        super().__init__()
        self.planted = planted
        self.layers = nn.Sequential(nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 1))
        if planted.kind == "backward":
            self.layers[2].weight.register_hook(self.slow_gradient)

    def slow_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        self.planted.timed(self.planted.compute)
        return gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.planted.kind == "forward":
            self.planted.timed(self.planted.compute)
        return self.layers(x).square().mean()


def checkpoint(model: nn.Module, planted: Planted, path: str) -> None:
    """Save the weights as often as takes as long, on average, as the rank is to be late."""
    until = time.monotonic() + planted.late_s * EVERY
    while time.monotonic() < until:  # <- cause checkpoint checkpoint_barrier
        torch.save(model.state_dict(), path)  # <- cause checkpoint checkpoint_barrier


def collect() -> None:
    gc.collect()  # <- cause gc


class Gradients:
    """The ranks' exchange: torch's own, or the loop's."""

    def __init__(self, sync: str, model: Model) -> None:
        self.model = model
        self.by_hand = sync == "manual"
        self.run = model if self.by_hand else DistributedDataParallel(model)

    def exchange(self) -> None:
        if self.by_hand:
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)


def train(args: argparse.Namespace, rank: int, store: str) -> None:
    """One rank."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    planted = Planted(args.kind, rank == args.late, args.late_ms)
    model = Model(planted, args.width)
    gradients = Gradients(args.sync, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    draw = random.Random(7)
    going, steps, begin = torch.ones(1), 0, 0.0
    for batch in DataLoader(Numbers(planted), batch_size=32):
        if args.kind == "jitter" and draw.randrange(args.ranks) == rank:
            planted.compute()
        loss = gradients.run(batch)
        optimizer.zero_grad()
        loss.backward()
        gradients.exchange()
        optimizer.step()
        if planted.kind == "optimizer":
            planted.timed(planted.compute)
        if planted.kind == "gc":
            planted.timed(collect)
        if args.kind.startswith("checkpoint") and steps % EVERY == 0:
            if planted.kind:
                planted.timed(lambda: checkpoint(model, planted, f"{store}.weights"))
            if args.kind == "checkpoint_barrier":
                dist.barrier()
        steps += 1
        if steps == EVERY:
            planted.spent_s, begin = 0.0, time.monotonic()
        if steps % EVERY == 0:
            going.fill_(float(steps <= EVERY or time.monotonic() - begin < args.seconds))
            dist.broadcast(going, 0)
            if not going.item():
                break
    span_s, counted = time.monotonic() - begin, steps - EVERY
    if rank == max(args.late, 0):
        ms = {"planted_ms": 1e3 * planted.spent_s / counted, "step_ms": 1e3 * span_s / counted, "steps": counted}
        print(json.dumps(ms), flush=True)
    dist.destroy_process_group()


def hold_up(pid: int) -> None:
    """Stop a rank for half of the time, as a tool that limits its CPU does."""
    try:
        while True:
            time.sleep(RUNNING_S)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
    except ProcessLookupError:
        return


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--late", type=int, default=-1, help="-1: none")
    parser.add_argument("--kind", default="balanced")
    parser.add_argument("--sync", choices=("ddp", "manual"), default="ddp")
    parser.add_argument("--late-ms", type=float, default=15)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=12)
    return parser.parse_args()


def main() -> None:
    args = options()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(args.ranks):
            pid = os.fork()
            if not pid:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(args.ranks))
                train(args, rank, f"{folder}/store")
                os._exit(0)
            pids.append(pid)
        if args.kind == "stopped":
            hold_up(pids.pop(args.late))
        for pid in pids:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
