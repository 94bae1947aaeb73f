"""``tuimon doctor``: what works on this machine, what does not, and how to fix it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tuimon.cli.checks import Check, all_checks
from tuimon.cli.options import parser_of
from tuimon.views.format import plain
from tuimon.views.json_text import json_text

_DOC = """\
Check what tuimon needs: Python, py-spy, the permission to read processes, shared memory, NVML, the terminal.
The exit code is 0 unless a check fails without which nothing can be watched."""

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    parser = parser_of("doctor", _DOC)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parsed = parser.parse_args(argv)
    checks = all_checks()
    if parsed.format == "json":
        content = {"schema": 1, "checks": [check._asdict() for check in checks]}
        sys.stdout.write(json_text(content, indent=2))
    else:
        sys.stdout.write("\n".join(lines(checks)) + "\n")
    return 1 if any(check.status == "fail" and check.essential for check in checks) else 0


def lines(checks: Sequence[Check]) -> list[str]:
    """The checks as text, each problem with its fix."""
    width = max(len(check.name) for check in checks)
    out = []
    for check in checks:
        out.append(f"{_MARKS[check.status]}  {check.name:<{width}}  {plain(check.message)}")
        if check.fix and check.status != "ok":
            out.append(f"      {'':<{width}}  -> {plain(check.fix)}")
    return out
