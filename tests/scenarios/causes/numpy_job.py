"""A job on a machine with GPUs fits a linear model with numpy; fixed: a training with torch."""
# category: no deep learning
# expects: no torch

import argparse
import time

import numpy as np


def fit(seconds):
    end, x, weights = time.time() + seconds, np.random.rand(400, 400), np.zeros(400)
    while time.time() < end:
        weights -= 1e-6 * x.T @ (x @ weights - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    if args.fixed:
        from plain import train

        train(args.seconds)
    else:
        fit(args.seconds)


if __name__ == "__main__":
    main()
