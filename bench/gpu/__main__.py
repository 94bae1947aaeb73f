"""``python -m bench.gpu``: everything about tuimon that only a real GPU can show, as one table and a few logs.

Prints a line and ends with 0 where there is no GPU. Each part is a process of its own with a time of its own: its rows
are printed, and written to ``--out``, as they are measured. Logs of at most 2 MB each lie there, too.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from bench.gpu import requirements

PARTS = ("tests", "nvml", "syncs", "clock", "steps", "orders", "demos", "programs")


def no_gpu() -> str | None:
    """Why nothing can be checked here; None where there is a GPU."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.version.cuda:
        return f"torch {torch.__version__} is built without CUDA"
    return None if torch.cuda.is_available() else f"torch {torch.__version__} finds no CUDA GPU"


def main() -> int:
    """Check the parts asked for."""
    begin_s = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="four minutes; a part alone takes one at most")
    parser.add_argument("--within", type=float, metavar="S", help="seconds for all of it, shared among the parts")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="where logs go (default %(default)s)")
    parser.add_argument("--wheels", action="store_true", help="list what it needs beside torch, for pip download")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--programs", nargs="+", metavar="NAME", help="of the part programs only these, in this order")
    parser.add_argument("--limit", type=float, help=argparse.SUPPRESS)  # of the one part that this process checks
    args = parser.parse_args()
    if args.wheels:
        print("\n".join(requirements.requirements().values()))
        return 0
    if args.limit is not None:
        return check_part(args.only[0], args.out, args.limit, args.programs, quick=args.quick)
    reason = no_gpu()
    if reason is not None:
        print(f"gpu-check: skipped, {reason}")
        return 0
    lacking = requirements.missing()
    if lacking:
        print(f"gpu-check: not installed: {', '.join(lacking)}. {requirements.how_to_install(lacking)}")
        return 1
    within_s = args.within or (240.0 if args.quick else math.inf)
    more = [*(["--quick"] if args.quick else []), *(["--programs", *args.programs] if args.programs else [])]
    return check(args.out.resolve(), args.only, begin_s, begin_s + within_s, more, quick=args.quick)


def check(out: Path, only: Sequence[str], begin_s: float, until_s: float, more: Sequence[str], *, quick: bool) -> int:
    """Check these parts, one after the other, and print the table; also of what is there when it is ended early."""
    from bench.__main__ import say
    from bench.gpu import limits
    from bench.gpu.rows import FILE, Rows, tables
    from bench.table import Row

    signal.signal(signal.SIGTERM, _end)
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_text("")
    where = place()
    parts = [part for part in PARTS if part in only]
    try:
        for done, part in enumerate(parts):
            limit_s = limits.limit_s(part, parts[done:], until_s - time.monotonic(), quick=quick)
            say(f"-- {part}: at most {limit_s:.0f} s")
            command = [
                sys.executable,
                "-m",
                "bench.gpu",
                "--only",
                part,
                "--out",
                str(out),
                "--limit",
                f"{limit_s:.1f}",
            ]
            ending = limits.run([*command, *more], limit_s)
            if ending is not None:
                Rows(out, part).add(Row(part, None, None, why_absent=ending))
            (out / "table.txt").write_text(f"{where}\n{tables(out)}\n")
    finally:
        print(f"{where}\n{tables(out)}", flush=True)
        say(f"checked in {time.monotonic() - begin_s:.0f} s; logs in {out}")
    return 0


def place() -> str:
    """The GPU and the machine, in a line."""
    import torch

    from bench.__main__ import machine

    return f"{torch.cuda.get_device_name()}, {machine()}"


def check_part(part: str, out: Path, limit_s: float, programs: list[str] | None, *, quick: bool) -> int:
    """Check one part in this process. One that breaks says so in a row."""
    from bench.__main__ import say
    from bench.gpu import parts
    from bench.gpu.rows import Rows
    from bench.table import Row

    signal.signal(signal.SIGTERM, _end)  # what it has started is ended with it
    rows = Rows(out, part)
    try:
        for row in parts.rows(part, parts.Effort(limit_s, quick, out, programs), say):
            rows.add(row)
    except Exception as error:  # noqa: BLE001  (hardware and drivers that nobody has seen: say so and go on)
        rows.add(Row(part, None, None, why_absent=f"{type(error).__name__}: {error}"))
    return 0


def _end(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
