"""Runs a GpuSource: each line on stdin ({"now_s": ..., "facts": ...}) is one look, its records go to stdout as JSON."""

import json
import os
import sys

import msgspec

from tuimon.sources.nvml.source import GpuSource
from tuimon.sources.run_processes import Targets


def main() -> None:
    now = [0.0]
    interval_s, patience_s = map(float, sys.argv[1:])
    targets = Targets(os.getpid(), None)
    source = GpuSource(targets, interval_s, clock=lambda: now[0], patience_s=patience_s)
    for line in sys.stdin:
        order = json.loads(line)
        now[0] = order["now_s"]
        targets.facts = {os.getpid(): order["facts"]} if order["facts"] else {}
        print(msgspec.json.encode(list(source.read())).decode(), flush=True)
    source.close()


main()
