"""Texts are counted by a pool of processes, and no model is there; fixed: a training with torch."""
# category: no deep learning
# expects: no torch

import argparse
import multiprocessing
import random
import time
from collections import Counter


def counted(seed):
    words = random.Random(seed).choices(["a", "tree", "of", "words"], k=200_000)
    return Counter(words).most_common(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    if args.fixed:
        from plain import train

        train(args.seconds)
        return
    end = time.time() + args.seconds
    with multiprocessing.Pool(2) as pool:
        while time.time() < end:
            pool.map(counted, range(8))


if __name__ == "__main__":
    main()
