"""Runs a GpuSource: each line on stdin ({"now_s": ..., "facts": ...}) is one read, its records go to stdout as JSON."""

import json
import os
import sys

import msgspec

from tuimon.proc.ring_facts import ring_facts
from tuimon.sources.nvml.source import GpuSource
from tuimon.sources.process_table import ProcessTable


def main() -> None:
    now = [0.0]
    interval_s, call_timeout_s = map(float, sys.argv[1:])
    table = ProcessTable(os.getpid(), None)
    source = GpuSource(table, interval_s, clock=lambda: now[0], call_timeout_s=call_timeout_s)
    for line in sys.stdin:
        order = json.loads(line)
        now[0] = order["now_s"]
        table.facts = {os.getpid(): ring_facts(order["facts"])} if order["facts"] else {}
        print(msgspec.json.encode(list(source.read())).decode(), flush=True)
    source.close()


main()
