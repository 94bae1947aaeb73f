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
    call_timeout_s, costs, root, name = sys.argv[1:]
    if not int(costs):
        drivers.SLOW_QUERIES_RATIO = source.BUSY_RATIO = math.inf
    table = ProcessTable(os.getpid(), None)
    driver = AmdSmi if name == AmdSmi.name else Nvml
    timeout_s = float(call_timeout_s)
    gpus = source.GpuSource(driver, table, 1.0, clock=lambda: now[0], call_timeout_s=timeout_s, root=root)
    for line in sys.stdin:
        order = json.loads(line)
        now[0] = order["now_s"]
        table.facts = {os.getpid(): ring_facts(order["facts"])} if order["facts"] else {}
        print(msgspec.json.encode(list(gpus.read())).decode(), flush=True)
    gpus.close()


main()
