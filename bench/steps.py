"""The training whose steps are timed: a process that runs one block of steps per line of a FIFO, or of its input.

A line is ``LOOP SECONDS``; the answer is one line of JSON with the median step time of that block. Between two blocks
the process waits, so that several of them (plain, under tuimon, under a peer) can take turns on the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
from collections.abc import Iterable, Iterator
from time import perf_counter_ns

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

#: loop -> (input width, hidden width, batch size, workers of its DataLoader or None without one, device)
LOOPS: dict[str, tuple[int, int, int, int | None, str]] = {
    "0.3ms": (64, 128, 64, None, "cpu"),
    "0.3ms-loader": (64, 128, 64, 0, "cpu"),
    "0.3ms-workers": (64, 128, 64, 2, "cpu"),
    "1.5ms": (128, 384, 96, None, "cpu"),
    "5ms": (256, 640, 160, None, "cpu"),
    "10ms": (256, 768, 192, None, "cpu"),
    "10ms-loader": (256, 768, 192, 0, "cpu"),
    "cuda-launch": (64, 128, 64, None, "cuda"),
    "cuda-launch-loader": (64, 128, 64, 0, "cuda"),
    "cuda-10ms": (4096, 12288, 8192, None, "cuda"),
}
#: Batches in memory, and of an epoch: MNIST has 938 of 64. On a GPU a batch has up to 134 MB.
BATCHES = {"cpu": 32, "cuda": 4}
EPOCH_BATCHES = 1024
#: On a GPU the CPU runs ahead: what is timed are so many steps up to a synchronisation.
GPU_CHUNK = 20


class Loop:
    """A model, its optimizer and its batches; ``run`` trains for a while and returns its step times."""

    def __init__(self, width: int, hidden: int, batch_size: int, workers: int | None, device: str) -> None:
        torch.manual_seed(1)
        self.device = torch.device(device)
        self.model = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.model.to(self.device)
        self.head = nn.Linear(hidden, 10).to(self.device)
        self.parameters = [*self.model.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.SGD(self.parameters, lr=1e-3, momentum=0.9)
        inputs = torch.randn(BATCHES[device] * batch_size, width, device=self.device)
        labels = torch.randint(10, (BATCHES[device] * batch_size,), device=self.device)
        # One tensor per batch already: the loader's own work per step stays small beside the step.
        batches = list(zip(inputs.split(batch_size), labels.split(batch_size), strict=True))
        self.feed: Iterable[tuple[Tensor, Tensor]] = batches
        if workers is not None:
            self.feed = DataLoader(_Ready(batches), batch_size=None, num_workers=workers)
        self._endless = self._epochs()

    def _epochs(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from self.feed

    def run(self, seconds: float) -> list[int]:
        """Step times in ns over ``seconds`` of training; on a GPU means of ``GPU_CHUNK`` steps."""
        until = perf_counter_ns() + int(seconds * 1e9)
        times: list[int] = []
        for step_ns in self.steps():
            times.append(step_ns)
            if perf_counter_ns() >= until:
                break
        return times

    def steps(self) -> Iterator[int]:
        """Train on, and give the time of each step in ns; on a GPU the means of ``GPU_CHUNK`` steps."""
        chunk = GPU_CHUNK if self.device.type == "cuda" else 1
        steps = 0
        last = perf_counter_ns()
        for inputs, labels in self._endless:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.head(self.model(inputs)), labels)
            loss.backward()
            self.optimizer.step()
            if chunk > 1:
                steps += 1
                if steps % chunk:
                    continue
                torch.cuda.synchronize()
            now = perf_counter_ns()
            yield (now - last) // chunk
            last = now


class _Ready(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """An epoch of batches that are there already."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return EPOCH_BATCHES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._batches[index % len(self._batches)]


def answer(loops: dict[str, Loop], request: str, profiled: bool) -> dict[str, object]:
    """Run the block that a line asks for."""
    name, seconds = request.split()
    if name not in loops:
        loops[name] = Loop(*LOOPS[name])
        loops[name].run(0.3)
    with torch_profiler() if profiled else contextlib.nullcontext():
        times = loops[name].run(float(seconds))
    return {"loop": name, "steps": len(times), "median_ns": statistics.median(times)}


def torch_profiler() -> contextlib.AbstractContextManager[object]:
    """torch's own profiler, as it is left on for a whole run."""
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU])


def main() -> None:
    """Answer line after line until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", nargs="?", default="/dev/stdin", help="where to read lines from")
    parser.add_argument("answers", nargs="?", default="/dev/stdout", help="where to write answers to")
    parser.add_argument("--torch-profiler", action="store_true", help="run every block under torch.profiler")
    args = parser.parse_args()
    torch.set_num_threads(1)
    loops: dict[str, Loop] = {}
    with open(args.requests) as requests, open(args.answers, "w") as answers:
        for request in iter(requests.readline, ""):
            if not request.strip():
                break
            print(json.dumps(answer(loops, request, args.torch_profiler)), file=answers, flush=True)


if __name__ == "__main__":
    main()
