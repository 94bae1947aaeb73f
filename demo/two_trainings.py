"""Two trainings side by side on one machine, each with --threads N intra-op threads.

With as many threads each as the machine has cores, they fight for the cores and both slow down; with half as
many, they do not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stopwatch import Budget, Stopwatch, add_common_options

NAMES = ("first", "second")


def train(args: argparse.Namespace) -> None:
    """One of the two: an MLP on random data, whose matrix products use all the threads they get."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 256, 256)
    labels = (inputs[..., :10] * 3).argmax(dim=-1)
    watch, budget = Stopwatch(), Budget(args.steps, args.seconds)
    watch.restart()
    for _ in range(args.epochs):
        for batch, target in zip(inputs, labels, strict=True):
            watch.lap("data")
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), target)
            watch.lap("forward")
            loss.backward()
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            if budget.done % args.log_interval == 0:
                print(f"{args.role:>6}  step {budget.done:5d}  loss {loss.item():.4f}", flush=True)
            watch.step()
            budget.count()
            if budget.spent():
                break
        if budget.spent():
            break
    watch.write(args.truth)


def train_both(args: argparse.Namespace) -> int:
    """Start the two, wait for them, print both step times. Returns the worse exit code."""
    with tempfile.TemporaryDirectory(prefix="two-trainings-") as folder:
        truths = {name: Path(folder, f"{name}.json") for name in NAMES}
        children = [subprocess.Popen(command_of(name, args, truths[name])) for name in NAMES]
        codes = [child.wait() for child in children]
        if any(codes):
            print(f"two_trainings.py: exit codes {codes}", file=sys.stderr)
            return max(abs(code) for code in codes)
        measured = {name: json.loads(path.read_text()) for name, path in truths.items()}
    for name, truth in measured.items():
        print(f"{name:>6}  {truth['steps']} steps, median {truth['median_ms']:.2f} ms")
    cores = len(os.sched_getaffinity(0))
    print(f"{2 * args.threads} threads on {cores} cores")
    if args.truth:
        Path(args.truth).write_text(json.dumps(measured, indent=2) + "\n")
    return 0


def command_of(name: str, args: argparse.Namespace, truth: Path) -> list[str]:
    command = [
        sys.executable,
        __file__,
        "--role",
        name,
        "--truth",
        str(truth),
        "--threads",
        str(args.threads),
    ]
    command += ["--epochs", str(args.epochs), "--log-interval", str(args.log_interval)]
    command += ["--seed", str(args.seed + NAMES.index(name))]
    if args.steps is not None:
        command += ["--steps", str(args.steps)]
    if args.seconds is not None:
        command += ["--seconds", str(args.seconds)]
    return command


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--log-interval", type=int, default=200, help="steps between two lines (default %(default)s)")
    add_common_options(parser, epochs=100, threads=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    if args.role:
        train(args)
        return 0
    return train_both(args)


if __name__ == "__main__":
    sys.exit(main())
