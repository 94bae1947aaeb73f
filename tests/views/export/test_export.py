"""Every export format from one literal log."""

import io
import json
import os
import tracemalloc

import pytest

from tests.session.records import header, process, stacks, steps, threads
from tests.session.test_steps import LOOP_FRAMES, LOOP_SAMPLES
from tests.views.export import speedscope_schema
from tuimon.records import Exit, Gpu, Mark, RangePlace
from tuimon.views.export import Selection, collapsed, speedscope, write_perfetto

LOG = [
    header(t=10.0),
    process(),
    process(201, "worker", ppid=100),
    LOOP_FRAMES,
    steps(11, {"data": 30, "forward": 20, "backward": 40, "optimizer": 10}),
    threads(11, (100, "python", 0.5, "running"), (101, "helper", 0.1, "waiting")),
    threads(11, (201, "pt_data_worker", 0.9, "running"), pid=201),
    stacks(11, *LOOP_SAMPLES),
    stacks(11, ([9], 7), pid=201),
    stacks(30, ([4, 5], 3)),
    Gpu(t=12, pid=0, index=0, uuid="GPU-a", name="A", util_ratio=0.5, pids=[100]),
    Mark(t=12, pid=100, name="epoch"),
    steps(12, {"between": 30, "backward": 70}, count=5),
    steps(13, {}, count=0),
    Exit(t=31, pid=100, exit_code=0),
]


def counted(lines):
    """How many samples the lines have."""
    return sum(int(line.rpartition(" ")[2]) for line in lines)


def test_collapsed_is_root_first_with_counts():
    lines = list(collapsed(LOG, Selection()))
    assert lines[0] == "main (train.py:10);get_batch (train.py:3) 30"
    assert "log (log.py:5) 7" in lines
    assert counted(lines) == 110


@pytest.mark.parametrize(
    "selection, samples",
    [
        (Selection(phase="data"), 30),
        (Selection(phase="backward"), 28),
        (Selection(phase="other"), 10),
        (Selection(role="worker"), 7),
        (Selection(role="worker 0"), 7),
        (Selection(role="main"), 103),
        (Selection(role="nobody"), 0),
        (Selection(until_s=5), 107),
        (Selection(from_s=5), 3),
        (Selection(phase="backward", until_s=5), 25),
    ],
)
def test_selections(selection, samples):
    assert counted(collapsed(LOG, selection)) == samples


def test_hostile_names_stay_on_their_line():
    evil = [record for record in LOG if record is not LOOP_FRAMES]
    frame = LOOP_FRAMES.frames[0]
    changed = [type(frame)("a;b\n\x1b[31m.py", 1, "f\r;g", "", True), *LOOP_FRAMES.frames[1:]]
    evil.insert(3, type(LOOP_FRAMES)(t=0, pid=100, first=0, frames=changed))
    line = next(line for line in collapsed(evil, Selection()) if "get_batch" in line)
    assert line.count(";") == 1
    assert line.isprintable()


def test_speedscope_fits_its_schema():
    file = json.loads(json.dumps(speedscope(LOG, Selection(), "run", "tuimon 0")))
    speedscope_schema.check(file)
    main, worker = file["profiles"]
    assert main["name"].startswith("main (100/100") and worker["name"].startswith("worker 0 (201/201")
    assert [file["shared"]["frames"][n]["name"] for n in main["samples"][0]] == ["main", "get_batch"]
    assert sum(main["weights"]) + sum(worker["weights"]) == 110


def test_perfetto_events():
    out = io.StringIO()
    write_perfetto(LOG, out)
    events = json.loads(out.getvalue())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "C", "i"}
    assert all({"name", "pid"} <= event.keys() for event in events)
    phases = [event["args"] for event in events if event["name"] == "ms per step"]
    assert phases[0] == {"data": 30.0, "forward": 20.0, "backward": 40.0, "optimizer": 10.0}
    assert [event["name"] for event in events if event["ph"] == "i"] == ["epoch", "ended: 0"]


def test_the_set_up_is_in_no_phase():
    early = [*LOG[:4], stacks(10.5, *LOOP_SAMPLES), *LOG[4:]]
    assert counted(collapsed(early, Selection(role="main"))) == 203
    assert counted(collapsed(early, Selection(phase="data"))) == 30


def test_perfetto_holds_no_more_of_a_long_run_than_of_a_short_one():
    def run(seconds):
        yield header()
        yield from (steps(float(t), {"backward": 1.0}) for t in range(1, seconds))

    def held(seconds):
        tracemalloc.start()
        with open(os.devnull, "w") as out:
            write_perfetto(run(seconds), out)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    held(100)
    assert held(3000) < held(300) + 100_000


@pytest.mark.parametrize(("part", "samples"), [("load/read", 30), ("read", 30), ("range:backward", 15), ("x", 0)])
def test_a_user_range_may_be_chosen(part, samples):
    places = [
        RangePlace("load", "train.py", "main", 9, 10),
        RangePlace("load/read", "train.py", "get_batch", 1, 5),
        RangePlace("backward", "train.py", "main", 13, 13),
    ]
    log = [*LOG[:-1], steps(14, {"data": 1}, range_places=places), LOG[-1]]
    assert counted(collapsed(log, Selection(phase=part))) == samples
