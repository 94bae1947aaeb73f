"""Programs that do not import torch themselves."""

import argparse
import multiprocessing
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np


# program: job_installs
# category: long installation
# expects: goodput/program
def job_installs(args):
    """A job is one script: it installs packages, which takes a compiler's time, and then starts the training."""
    busy = "import sys, time; end = time.time() + float(sys.argv[1])\nwhile time.time() < end: sum(range(999))"
    subprocess.check_call([sys.executable, "-c", busy, str(0.2 if args.fixed else args.seconds / 2)])
    training = [str(Path(__file__).with_name("around_training.py")), "pip_first"]
    subprocess.check_call([sys.executable, *training, f"--seconds={args.seconds}", "--fixed"])


# program: numpy_job
# category: no deep learning
# expects: no torch
def numpy_job(args):
    """A job on a machine with GPUs fits a linear model with numpy; fixed: a training with torch."""
    if args.fixed:
        train(args)
        return
    end, x, weights = time.time() + args.seconds, np.random.rand(400, 400), np.zeros(400)
    while time.time() < end:
        weights -= 1e-6 * x.T @ (x @ weights - 1)


# program: pool_of_processes
# category: no deep learning
# expects: no torch
def pool_of_processes(args):
    """Texts are counted by a pool of processes, and no model is there; fixed: a training with torch."""
    if args.fixed:
        train(args)
        return
    end = time.time() + args.seconds
    with multiprocessing.Pool(2) as pool:
        while time.time() < end:
            pool.map(counted, range(8))


def counted(seed):
    words = random.Random(seed).choices(["a", "tree", "of", "words"], k=200_000)
    return Counter(words).most_common(1)


def train(args):
    import laps

    laps.train(args.seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    globals()[args.program](args)
