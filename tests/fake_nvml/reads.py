"""Runs a GpuSource: each line on stdin ({"now_s": ..., "facts": ...}) is one read, its records go to stdout as JSON."""

import json
import math
import os
import sys

import msgspec

from tuimon.proc.ring_facts import ring_facts
from tuimon.sources.gpus import driver as drivers
from tuimon.sources.gpus import source
from tuimon.sources.gpus.amdsmi import AmdSmi
from tuimon.sources.gpus.nvml import Nvml
from tuimon.sources.process_table import ProcessTable


def main() -> None:
    now = [0.0]
    interval_s, call_timeout_s, costs = map(float, sys.argv[1:4])
    if not costs:
        drivers.SLOW_RATIO = source.BUSY_RATIO = math.inf
    table = ProcessTable(os.getpid(), None)
    driver = AmdSmi if sys.argv[5] == AmdSmi.name else Nvml
    gpus = source.GpuSource(
        driver, table, interval_s, clock=lambda: now[0], call_timeout_s=call_timeout_s, root=sys.argv[4]
    )
    for line in sys.stdin:
        order = json.loads(line)
        now[0] = order["now_s"]
        table.facts = {os.getpid(): ring_facts(order["facts"])} if order["facts"] else {}
        print(msgspec.json.encode(list(gpus.read())).decode(), flush=True)
    gpus.close()


main()
