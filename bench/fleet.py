"""What a run of many ranks costs to look at: ``python -m bench.fleet --ranks 8 64 256 1024`` prints the curve.

The logs are made up (``bench.fleet_logs``): eight ranks a node, windows of a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from bench import processes
from bench.fleet_logs import Job, NodeWriter, step_ends, write
from bench.terminal import Terminal

#: Of 256 ranks: seconds to the first frame, share of a core to follow, megabytes (10^6 bytes).
PROMISES = "promised for 256 ranks: first frame 2 s, follow 10 % of a core, 300 MB; log 2.7 kB a rank and step"
_TUIMON = [sys.executable, "-m", "tuimon"]
_HISTORY_S, _SETTLE_S = 30.0, 10.0


class Reported(NamedTuple):
    """One ``tuimon report --format json``."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    json_kb: float


class Followed(NamedTuple):
    """One ``tuimon view`` of logs that grow."""

    cpu_percent: float
    rss_mb: float


def log_bytes(folder: str, job: Job) -> float:
    """Bytes of log a rank and step."""
    size = sum(entry.stat().st_size for entry in os.scandir(folder))
    return size / job.world_size / len(step_ends(job))


def report(folder: str) -> Reported:
    """Report once."""
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as out:
        path = os.path.join(out, "report.json")
        begun_s = time.monotonic()
        pid = os.spawnv(os.P_NOWAIT, sys.executable, [*_TUIMON, "report", folder, "--format", "json", "-o", path])
        _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError(f"report ended with {os.waitstatus_to_exitcode(status)}")
        wall_s = time.monotonic() - begun_s
        size = os.path.getsize(path)
    return Reported(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, size / 1e3)


def first_frame(folder: str, ranks: int) -> tuple[float | None, float | None]:
    """Seconds from the start of ``tuimon view`` to its first frame, and to the first that counts all ranks."""
    times = []
    for wanted in (b"tuimon", b"%d ranks" % ranks):
        terminal = Terminal([*_TUIMON, "view", folder], cwd=folder, columns=200, lines=60)
        try:
            times.append(terminal.wait_for(wanted, timeout_s=60))
        finally:
            terminal.close()
    return times[0], times[1]


def follow(job: Job, window_s: float) -> Followed:
    """View a job while its logs are written, from half a minute after its start on."""
    job = job._replace(begun_unix_s=time.time() - _HISTORY_S, seconds=_HISTORY_S + _SETTLE_S + window_s + 60)
    ends = step_ends(job)
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
        writers = [NodeWriter(folder, job, node, ends) for node in range(job.nodes)]
        done = threading.Event()

        def write_on() -> None:
            while not done.wait(0.5):
                for writer in writers:
                    writer.write_until(time.time() - job.begun_unix_s)

        for writer in writers:
            writer.write_until(_HISTORY_S)
        thread = threading.Thread(target=write_on)
        thread.start()
        terminal = Terminal([*_TUIMON, "view", folder], cwd=folder, columns=200, lines=60)
        try:
            terminal.wait_for(b"%d ranks" % job.world_size, timeout_s=60)
            terminal.drain_for(_SETTLE_S)
            before, rss = processes.usage(terminal.pid), 0
            begun_s = time.monotonic()
            while time.monotonic() - begun_s < window_s:
                terminal.drain_for(0.5)
                rss = max(rss, processes.rss_bytes(terminal.pid))
            spent_s = processes.usage(terminal.pid).own_s - before.own_s
            return Followed(100 * spent_s / (time.monotonic() - begun_s), rss / 1e6)
        finally:
            terminal.close()
            done.set()
            thread.join()
            for writer in writers:
                writer.close()


def measure(ranks: int, seconds: float, window_s: float) -> str:
    """A line of the curve."""
    job = Job(nodes=max(1, ranks // 8), ranks=min(8, ranks), seconds=seconds, late=ranks // 3)
    with tempfile.TemporaryDirectory(prefix="tuimon-bench-") as folder:
        write(folder, job)
        each = log_bytes(folder, job)
        frame_s, all_s = first_frame(folder, ranks)
        reported = report(folder)
    followed = follow(job, window_s) if window_s else None
    return (
        f"{ranks:>6} {each:>8.0f} {_number(frame_s)} {_number(all_s)} {reported.wall_s:>8.1f} {reported.cpu_s:>7.1f}"
        f" {reported.rss_mb:>7.0f} {reported.json_kb:>7.0f}"
        + (f" {followed.cpu_percent:>7.1f} {followed.rss_mb:>7.0f}" if followed else "")
    )


def _number(value: float | None) -> str:
    return f"{value:>8.2f}" if value is not None else f"{'-':>8}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256, 1024])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the recorded job")
    parser.add_argument("--window", type=float, default=20.0, help="seconds to follow; 0: do not")
    parsed = parser.parse_args(arguments)
    print(
        "        log, B    first  frame of   report  report  report  report  follow  follow\n"
        " ranks /rank,step frame s all ranks       s   CPU s      MB JSON kB     % MB"
    )
    for ranks in parsed.ranks:
        print(measure(ranks, parsed.seconds, parsed.window), flush=True)
    print(PROMISES)


if __name__ == "__main__":
    main()
