"""``python -m tests.fuzz [--lines N] [--rings N] [--seed S] ...``: hostile input, and what comes of it.

The work is done by a child process, so that a hang, a crash and too much memory are findings too. Each finding is
printed once for each place in the code, with the seed of a case that has it; exit code 1 when there is any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from tests.fuzz.cases import Findings, run_lines, run_nodes, run_rings, run_strings

FULL = {"lines": 20_000, "nodes": 2_000, "rings": 10_000, "strings": 2_000}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    for name, number in FULL.items():
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--logs", metavar="DIR", help="damage the logs of this folder as well")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.seed is None:
        parsed.seed = time.time_ns() % 1_000_000
    return _child(parsed) if parsed.child else _watched(parsed)


def _watched(parsed: argparse.Namespace) -> int:
    """Start the child again where a case has killed it; the case is a finding."""
    print(f"seed {parsed.seed}", flush=True)
    words = [f"--{name}={getattr(parsed, name)}" for name in FULL] + [f"--seed={parsed.seed}"]
    words += [f"--logs={parsed.logs}"] if parsed.logs else []
    child = subprocess.Popen([sys.executable, "-m", "tests.fuzz", "--child", *words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    ended, case = None, ""
    for line in child.stdout:
        if line.startswith("case "):
            case = line.strip()
        elif line.startswith("{"):
            ended = json.loads(line)
        else:
            print(line, end="", flush=True)
    code = child.wait()
    if ended is None:
        print(f"the process ended with code {code} in {case}", flush=True)
        return 1
    print(
        f"{ended['cases']} cases ({ended['lines']} lines, {ended['nodes']} lines of nodes, {ended['rings']} rings, "
        f"{ended['strings']} strings): {ended['tracebacks']} tracebacks, {ended['hangs']} hangs over 5 s, "
        f"{ended['controls']} outputs with control characters, {ended['memory_mb']:.0f} MB at most, "
        f"{ended['seconds']:.0f} s",
        flush=True,
    )
    return int(ended["tracebacks"] + ended["hangs"] + ended["controls"] > 0 or ended["memory_mb"] > 300)


def _child(parsed: argparse.Namespace) -> int:
    findings = Findings()
    began_s = time.monotonic()
    run_strings(findings, parsed.strings, parsed.seed)
    run_rings(findings, parsed.rings, parsed.seed)
    run_nodes(findings, parsed.nodes, parsed.seed)
    run_lines(findings, parsed.lines, parsed.seed, parsed.logs)
    content = findings.summary() | {name: getattr(parsed, name) for name in FULL}
    print(json.dumps(content | {"seconds": time.monotonic() - began_s}), flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TERM", "xterm-256color")
    sys.exit(main())
