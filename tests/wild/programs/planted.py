"""What every program needs: its options, and the stopwatch that ends it and tells how long its steps took."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scenarios" / "scripts"))

import torch
from laps import Laps

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=10)
parser.add_argument("--planted", action="store_true", help="with the work that makes it slow")
args = parser.parse_args()
#: Whether the slow work is done.
PLANTED = args.planted
Clock = partial(Laps, args.seconds)
torch.set_num_threads(1)
