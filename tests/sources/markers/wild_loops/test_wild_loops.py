"""Every loop of ``wild.py`` under injection: the right number of steps, every pause in the right phase."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tuimon.records import BETWEEN, Steps
from tuimon.sources.markers.source import MarkerSource
from tuimon.sources.process_table import ProcessTable

HERE = Path(__file__).parent
INJECT = HERE.parents[3] / "tuimon" / "agent" / "inject"
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


class Seen:
    """What the Steps records of one process add up to."""

    def __init__(self):
        self.steps = 0
        self.phases = Counter()
        self.ranges = Counter()
        self.dropped = 0

    def add(self, record):
        self.steps += record.count
        self.dropped += record.dropped
        for phase in record.phases:
            self.phases[phase.name] += phase.total_ns / 1e9
        for r in record.ranges:
            self.ranges[r.path] += r.count


def read_all(process, source, seen):
    """Read markers until the process has ended and its rings are empty."""
    deadline = time.monotonic() + 250
    rest = 3  # looks after the end
    while rest and time.monotonic() < deadline:
        for record in source.read():
            if isinstance(record, Steps):
                seen.setdefault(record.pid, Seen()).add(record)
        if process.poll() is not None:
            rest -= 1
        time.sleep(0.05)
    source.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    rings = tmp_path_factory.mktemp("rings")
    env = dict(os.environ, TUIMON_RUN="wild", TUIMON_RING_DIR=str(rings))
    env["PYTHONPATH"] = f"{INJECT}{os.pathsep}{env.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    process = subprocess.Popen(
        [sys.executable, str(HERE / "wild.py")], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    before = os.environ.get("TUIMON_RING_DIR")
    os.environ["TUIMON_RING_DIR"] = str(rings)
    seen = {}
    try:
        read_all(process, MarkerSource(ProcessTable(process.pid, "wild"), 0.25), seen)
    finally:
        if before is None:
            del os.environ["TUIMON_RING_DIR"]
        else:
            os.environ["TUIMON_RING_DIR"] = before
        process.kill()
    out, err = process.communicate()
    assert process.returncode == 0, err
    told = [json.loads(line) for line in out.splitlines()]
    return {run["name"]: (run, seen.get(run["pid"], Seen())) for run in told}, err


def loops():
    text = (HERE / "wild.py").read_text()
    return [part.split("(")[0] for part in text.split("\ndef ") if part.split("(")[0] not in ("loop", "new", "main")][
        1:
    ]


def test_all_loops_ran(runs):
    told, err = runs
    assert sorted(told) == sorted(loops()), err
    assert err == ""


@pytest.mark.parametrize("name", loops())
def test_steps_are_counted(runs, name):
    run, seen = runs[0][name]
    assert seen.dropped == 0
    assert seen.steps == run["steps"]


@pytest.mark.parametrize("name", loops())
def test_time_is_in_its_phase(runs, name):
    run, seen = runs[0][name]
    seconds = Counter(seen.phases)
    if seconds[BETWEEN]:  # without samples, what markers cannot split is told as such
        seconds[BETWEEN] += seconds.pop("forward", 0) + seconds.pop("data", 0) + seconds.pop("other", 0)
        expected = Counter({BETWEEN: sum(run["truth"].get(p, 0) for p in ("data", "forward", "other"))})
        expected += Counter({p: s for p, s in run["truth"].items() if p not in ("data", "forward", "other")})
    else:
        expected = Counter(run["truth"])
    whole = sum(seconds.values())
    for phase in expected.keys() | seconds.keys():
        # what a phase took beside its pauses, and what the first partial step held, is small on a core of its own
        room = 0.18 * whole + run["delayed_s"]
        assert seconds[phase] == pytest.approx(expected[phase], abs=room), (phase, seconds, expected, run["delayed_s"])


def test_user_ranges_are_seen(runs):
    assert runs[0]["told_by_the_user"][1].ranges["half"] >= 20
