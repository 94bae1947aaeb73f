"""How large a log becomes: megabytes for an hour of one training, compressed and plain, and its parts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.overhead import Say
from bench.table import Row, Spread

ROOT = Path(__file__).resolve().parent.parent
SLOW_LOADER = str(ROOT / "demo" / "slow_loader.py")
#: Megabytes for an hour of one rank, compressed.
PROMISE_MB = 5.0
#: What is told once (frames, processes) is over by then.
SETTLE_S = 10.0

#: A training of small steps and nothing else.
QUIET = """
import sys, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
optimizer = torch.optim.Adam(model.parameters())
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    loss = model(torch.randn(256, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
"""

#: The same beside 200 threads of its own that do a little work each.
MANY_THREADS = f"""
import sys, threading, time

def work(n):
    while True:
        time.sleep(0.05)
        sum(range(200 + n))

for n in range(200):
    threading.Thread(target=work, args=(n,), name=f"user-{{n}}", daemon=True).start()
{QUIET}"""


class Case(NamedTuple):
    """A kind of training."""

    command: list[str]
    gpus: int = 0  # simulated


CASES = {
    "quiet": Case(["-c", QUIET]),
    "2 workers": Case([SLOW_LOADER, "--workers", "2", "--seconds"]),
    "8 workers": Case([SLOW_LOADER, "--workers", "8", "--seconds"]),
    "200 threads": Case(["-c", MANY_THREADS]),
    "2 workers, a simulated GPU": Case([SLOW_LOADER, "--workers", "2", "--seconds"], gpus=1),
}


class Grown(NamedTuple):
    """What a log gained in an hour at this rate: in all and by type of record, megabytes (10^6 bytes)."""

    mb_per_hour: float
    by_type: dict[str, float]


class Hour(NamedTuple):
    """What a log gains, plain, and by how much compression shrinks it."""

    plain: Grown
    compression: float

    @property
    def mb(self) -> float:
        """Compressed."""
        return self.plain.mb_per_hour / self.compression


def measure(window_s: float, say: Say) -> list[Row]:
    """A row for each kind of training; its parts are said beside it."""
    rows: list[Row] = []
    for name, case in CASES.items():
        say(f"the log of one training, {name}: {SETTLE_S + window_s:.0f} s")
        hour = watch(case, window_s)
        if hour is not None:
            say(_parts(hour.plain))
            say(f"  compressed (.gz): {hour.compression:.1f}x smaller")
        measured = Spread.of([hour.mb]) if hour else None
        rows.append(Row(f"compressed log of an hour, {name}", PROMISE_MB, measured, unit="MB"))
    return rows


def _parts(plain: Grown) -> str:
    fattest = sorted(plain.by_type.items(), key=lambda entry: -entry[1])[:4]
    kinds = ", ".join(f"{kind} {mb:.2f}" for kind, mb in fattest)
    return f"  plain: {plain.mb_per_hour:.2f} MB an hour ({kinds})"


def watch(case: Case, window_s: float) -> Hour | None:
    """Run it under ``tuimon run --headless``; None when that leaves no log."""
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
        log = Path(folder, "run.jsonl")
        run = [sys.executable, "-m", "tuimon", "run", "--headless", "--log", str(log), "--"]
        run += [sys.executable, *case.command, str(SETTLE_S + window_s)]
        if case.gpus:
            run = [sys.executable, "-m", "tests.fake_nvml", str(case.gpus), *run]
        subprocess.run(run, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if not log.exists():
            return None
        lines = log.read_bytes().splitlines()
        plain = grown(lines, SETTLE_S)
        return Hour(plain, compressed(lines)) if plain is not None else None


def grown(lines: Sequence[bytes], settle_s: float = 0.0) -> Grown | None:
    """From the lines of a log: its rate after ``settle_s``; None where it covers no time."""
    sizes: Counter[str] = Counter()
    read = [(json.loads(line), len(line) + 1) for line in lines]
    begin_s = min((record["t"] - record.get("window_s", 0.0) for record, _ in read), default=0.0) + settle_s
    end_s = max((record["t"] for record, _ in read), default=0.0)
    if end_s <= begin_s:
        return None
    for record, size in read:
        if record["t"] > begin_s:
            sizes[record["type"]] += size
    per_hour = 3600 / (end_s - begin_s) / 1e6
    return Grown(sizes.total() * per_hour, {kind: size * per_hour for kind, size in sizes.items()})


def compressed(lines: Sequence[bytes]) -> float:
    """How many times smaller these lines are in a compressed log, flushed every second."""
    from tuimon.sources.log.compression import GZIP_WINDOW_BITS

    stream, size, second, batch = zlib.compressobj(wbits=GZIP_WINDOW_BITS), 0, 0, b""
    for line in lines:
        batch += line + b"\n"
        if int(json.loads(line)["t"]) != second:
            second = int(json.loads(line)["t"])
            size += len(stream.compress(batch)) + len(stream.flush(zlib.Z_SYNC_FLUSH))
            batch = b""
    size += len(stream.compress(batch)) + len(stream.flush())
    return sum(len(line) + 1 for line in lines) / size if size else 1.0
