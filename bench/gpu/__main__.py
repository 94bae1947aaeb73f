"""``python -m bench.gpu``: everything about tuimon that only a real GPU can show, as one table and a few logs.

Prints a line and ends with 0 where there is no GPU. Logs of at most 2 MB each are written to ``--out``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.gpu import requirements

if TYPE_CHECKING:
    from bench.table import Row

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("tests", "nvml", "syncs", "clock", "steps", "orders", "demos")


def parts(out: Path, quick: bool) -> dict[str, Callable[[], list[Row]]]:
    """What is checked, by name; imported here, once what it needs is known to be there."""
    from bench import overhead
    from bench.__main__ import say
    from bench.gpu import against_profiler, demos, nvml_latency, orders, syncs

    rounds, block_s = (1, 1.0) if quick else (3, 2.0)
    return {
        "tests": gpu_tests,
        "nvml": lambda: nvml_latency.measure(50, say),
        "syncs": lambda: syncs.measure(50, say),
        "clock": lambda: against_profiler.measure(100 if quick else 300, say),
        "steps": lambda: overhead.measure(
            list(overhead.CUDA_PROMISES), [overhead.TUIMON], rounds=rounds, turns=2, block_s=block_s, say=say
        ),
        "orders": lambda: orders.measure(12.0, out, say),
        "demos": lambda: demos.measure(12.0 if quick else 25.0, out, say),
    }


def gpu_tests() -> list[Row]:
    """The tests marked ``gpu``: how many failed."""
    from bench.__main__ import say
    from bench.table import Row, Spread

    say("the tests marked gpu")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() or ["it said nothing"]
    say("\n".join(lines[-40:] if done.returncode else lines[-1:]))
    failed = sum(line.startswith(("FAILED", "ERROR")) for line in lines)
    if done.returncode and not failed:
        return [Row("gpu tests that fail", 0, None, why_absent=f"{lines[-1]} {done.stderr.strip()[-200:]}")]
    return [Row(f"gpu tests that fail ({lines[-1].strip('= ')})", 0, Spread.of([failed]))]


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
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about four minutes")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="where logs go (default %(default)s)")
    parser.add_argument("--wheels", action="store_true", help="list what it needs beside torch, for pip download")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    args = parser.parse_args()
    if args.wheels:
        print("\n".join(requirements.requirements().values()))
        return 0
    reason = no_gpu()
    if reason is not None:
        print(f"gpu-check: skipped, {reason}")
        return 0
    lacking = requirements.missing()
    if lacking:
        print(f"gpu-check: not installed: {', '.join(lacking)}. {requirements.how_to_install(lacking)}")
        return 1
    return check(args.out, args.only, quick=args.quick)


def check(out: Path, only: Sequence[str], *, quick: bool) -> int:
    """Check these parts, and print the table."""
    import torch

    from bench.__main__ import machine, say
    from bench.table import render

    out.mkdir(parents=True, exist_ok=True)
    where, start_s = machine(), time.monotonic()
    rows: list[Row] = []
    for name, check in parts(out, quick).items():
        if name in only:
            rows += _checked(name, check)
    table = "\n".join([f"{torch.cuda.get_device_name()}, {where}", render(rows)])
    print(table)
    (out / "table.txt").write_text(table + "\n")
    say(f"checked in {time.monotonic() - start_s:.0f} s; logs in {out}")
    return 0


def _checked(name: str, check: Callable[[], list[Row]]) -> list[Row]:
    """The rows of one part; one that breaks does not take the others with it."""
    from bench.table import Row

    try:
        return check()
    except Exception as error:  # noqa: BLE001  (hardware and drivers that nobody has seen: say so and go on)
        return [Row(name, None, None, why_absent=f"{type(error).__name__}: {error}")]


if __name__ == "__main__":
    sys.exit(main())
