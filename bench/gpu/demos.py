"""The demos on the GPU under ``tuimon run``: their logs, what the report says, how well py-spy does there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.records import Gpu, GpuTime, Stacks
from tuimon.sources.log.reader import read_log

ROOT = Path(__file__).resolve().parents[2]
#: name of the log -> demo and its arguments
DEMOS = {
    "small_model": ["demo/mnist_like.py", "gpu", "--epochs", "1000000"],
    "big_batch": ["demo/mnist_like.py", "gpu", "--epochs", "1000000", "--batch-size", "3200"],
    "slow_loader": ["demo/slow_loader.py", "--device", "cuda", "--workers", "2"],
}
LOG_LIMIT_BYTES = 2_000_000


def measure(seconds: float, out: Path, say: Say) -> list[Row]:
    """A few rows per demo."""
    rows: list[Row] = []
    for name, demo in DEMOS.items():
        say(f"demo {name} under tuimon: {seconds:.0f} s")
        rows += _demo(name, [*demo, "--seconds", str(seconds)], out / f"{name}.jsonl")
    return rows


def _demo(name: str, demo: list[str], log: Path) -> list[Row]:
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tuimon", "run", "--headless", "--log", str(log), "--", sys.executable, *demo]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not log.exists():
        return [Row(name, None, None, why_absent=f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")]
    report = subprocess.run(
        [sys.executable, "-m", "tuimon", "report", str(log), "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    findings = json.loads(report.stdout)["findings"] if report.returncode == 0 else []
    verdict = ", ".join(f"{found['rule']} ({found['severity']})" for found in findings) or "no finding"
    return [Row(f"{name}: {verdict}", None, None, why_absent=" "), *_figures(name, log)]


def _figures(name: str, log: Path) -> list[Row]:
    records = list(read_log(str(log)))
    stacks = [record for record in records if isinstance(record, Stacks)]
    timed = [record for record in records if isinstance(record, GpuTime)]
    gpus = [record for record in records if isinstance(record, Gpu)]
    read = sum(record.samples for record in stacks)
    failed = sum(record.failed for record in stacks)
    rows = [Row(f"{name}: log", LOG_LIMIT_BYTES / 1e6, Spread.of([log.stat().st_size / 1e6]), unit="MB")]
    if read + failed:
        share = 100 * failed / (read + failed)
        rows.append(
            Row(f"{name}: samples py-spy could not read, of {read + failed}", None, Spread.of([share]), unit="%")
        )
    else:
        rows.append(Row(f"{name}: py-spy", None, None, why_absent="no samples"))
    rows.append(Row(f"{name}: turns timed on the GPU", None, Spread.of([sum(r.steps for r in timed)])))
    errors = [record.lead_error_us for record in timed if record.lead_error_us is not None]
    rows.append(Row(f"{name}: lead known to within", 50.0, Spread.of(errors), unit="us"))
    utils = [100 * record.util_ratio for record in gpus if record.util_ratio is not None]
    rows.append(Row(f"{name}: GPU utilisation", None, Spread.of(utils), unit="%"))
    return rows
