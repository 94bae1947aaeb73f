"""``python -m tests.day [--minutes 30]``: a training day, 48 times as fast, under ``tuimon run``.

Two ranks train tiny steps while workers, threads and programs come and go, one rank restarts by exec, py-spy is killed
and the GPU driver fails (a fake one). Prints what happened and what was promised; exit code 1 when a promise is broken.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench import processes
from bench.terminal import Terminal
from tests.day.counted import logged, made
from tests.day.faults import Faults
from tests.day.readings import INTERVAL_S, RANKS, Hourly, Reading, read, simulated_hours
from tests.day.table import Day, promises, table
from tests.fake_nvml import MOVING, Scenario, modern, usual
from tuimon.sources.log.source import read_records

#: How long all may take beside the day itself: the training to begin and to end, and then the monitor to end.
BESIDE_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.day", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M")
    parser.add_argument("--full-screen", action="store_true", help="on a terminal of its own instead of headless")
    parser.add_argument("--keep", metavar="DIR", help="leave the log and the readings there")
    parsed = parser.parse_args()
    with _folder(parsed.keep) as folder:
        day = live(folder, parsed.minutes, full_screen=parsed.full_screen)
        print(table(day))
        return int(any(promise.kept is False for promise in promises(day)))


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        Path(keep).mkdir(parents=True, exist_ok=True)
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory(prefix="tuimon-day-") as folder:
        yield Path(folder)


def live(folder: Path, minutes: float, *, full_screen: bool) -> Day:
    """Run it, a line a minute on stderr."""
    for earlier in (folder / "made.jsonl", *folder.glob("day*.jsonl")):
        earlier.unlink(missing_ok=True)
    (folder / "rings").mkdir(mode=0o700, exist_ok=True)
    (folder / "driver").mkdir(exist_ok=True)
    scenario = Scenario(folder / "driver")
    scenario.set(modern(0), devices=1, driver="580.65.06", **usual(0))
    scenario.set(MOVING)
    log, seconds = folder / "day.jsonl", minutes * 60
    command = [sys.executable, "-m", "tuimon", "run", *([] if full_screen else ["--headless"])]
    command += ["--interval", str(INTERVAL_S), "--log", str(log), "--"]
    command += [sys.executable, "-m", "tests.day.training", str(folder), str(seconds)]
    environment = {**scenario.environment, "TUIMON_RING_DIR": str(folder / "rings"), "CUDA_VISIBLE_DEVICES": "0"}
    environment |= {"RANK": "0", "WORLD_SIZE": str(RANKS), "LOCAL_RANK": "0"}
    variables = [f"{name}={value}" for name, value in environment.items()]
    terminal = Terminal(["env", *variables, *command], cwd=os.getcwd())  # env replaces itself
    faults = Faults(scenario, Hourly())
    try:
        readings = watch(terminal, log, faults, seconds + BESIDE_S)
        exit_code = terminal.poll()
    finally:
        terminal.close()
    with open(folder / "readings.json", "w") as file:
        json.dump([reading._asdict() for reading in readings], file)
    own, events = made(folder / "made.jsonl")
    return Day(
        minutes=minutes,
        readings=readings,
        made=own,
        events=events + faults.counts,
        logged=logged(read_records(str(log))),
        left_behind=sorted(path.name for path in (folder / "rings").iterdir()),
        exit_code=exit_code,
    )


def watch(terminal: Terminal, log: Path, faults: Faults, most_s: float) -> list[Reading]:
    """A reading a second and a step of the faults ten times a second, until the monitor has ended.

    After ``most_s`` it is given up; time in which one of the processes waits for a core is not counted.
    """
    began_s, readings, trainer = time.monotonic(), list[Reading](), None
    said_s, before_s, waited_s = 0.0, 0.0, dict[int, float]()
    while terminal.poll() is None and most_s > 0.0:
        terminal.drain_for(0.1)
        at_s = time.monotonic() - began_s
        faults.step(terminal.pid)
        if readings and at_s < readings[-1].at_s + 1.0:
            continue
        now_s = {pid: _waited_s(pid) for pid in (terminal.pid, *processes.descendants(terminal.pid))}
        longest_s = max(waited - waited_s.get(pid, 0.0) for pid, waited in now_s.items())
        most_s -= at_s - before_s - longest_s  # the kernel adds a wait when it is over, so some counts late
        before_s, waited_s = at_s, now_s
        trainer = trainer or _trainer(terminal.pid)
        try:
            readings.append(read(at_s, terminal.pid, trainer, log))
        except psutil.Error:
            break
        if trainer is not None and readings[-1].training_mb is None:
            terminal.press("q")  # headless, it has ended by itself
        if at_s >= said_s:
            said_s += 60.0
            print(_line(readings[-1]), file=sys.stderr, flush=True)
    return readings


def _waited_s(pid: int) -> float:
    """How long its main thread has been ready to run without a core; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _line(latest: Reading) -> str:
    training = "–" if latest.training_mb is None else f"{latest.training_mb:.0f}"
    return (
        f"{latest.at_s / 60:5.1f} min = {simulated_hours(latest.at_s):5.1f} h: monitor {latest.monitor_mb:.1f} MB, "
        f"training {training} MB, log {latest.log_mb:.1f} MB"
    )


def _trainer(monitor: int) -> int | None:
    """Rank 0: the first below the monitor that runs the training; its workers bear the same command line."""
    for pid in processes.descendants(monitor):
        if "tests.day.training" in processes.command_line(pid):
            return pid
    return None


if __name__ == "__main__":
    sys.exit(main())
