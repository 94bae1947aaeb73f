"""``python -m tests.fuzz [--lines N] [--rings N] [--seed S] ...``: hostile input, and what comes of it.

Each finding is printed once for each place in the code, with the seed of a case that has it; exit code 1 when there is
any. If a case ends the process, it is the last one on stderr.
"""

import argparse
import os
import sys
import time

from tests.fuzz.cases import Findings, run_lines, run_nodes, run_rings, run_strings

FULL = {"lines": 20_000, "nodes": 2_000, "rings": 10_000, "strings": 2_000}
#: Memory that all the cases together may take.
MAX_MB = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    for name, number in FULL.items():
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parsed = parser.parse_args()
    print(f"seed {parsed.seed}", flush=True)
    findings, began_s = Findings(), time.monotonic()
    run_strings(findings, parsed.strings, parsed.seed)
    run_rings(findings, parsed.rings, parsed.seed)
    run_nodes(findings, parsed.nodes, parsed.seed)
    run_lines(findings, parsed.lines, parsed.seed)
    print(f"{findings.summary()}, {time.monotonic() - began_s:.0f} s")
    return int(bool(findings.places) or findings.memory_mb > MAX_MB)


if __name__ == "__main__":
    os.environ.setdefault("TERM", "xterm-256color")
    sys.exit(main())
