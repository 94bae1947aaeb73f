"""A comparison as text: nothing is cut, nothing made up, foreign text is data."""

from typing import get_args

import pytest
from msgspec.structs import replace

from tuimon.diagnosis.cells import Doing, Via
from tuimon.views.comparison.result import Comparison, FindingChange, LineChange, Promise, Range, Row, Side, Unlike
from tuimon.views.diff import text_diff
from tuimon.views.report_types import RunFacts

SIDE = Side(["runs/before.jsonl"], RunFacts(), 1240, 62.0, 2.0)
FOUND = Comparison(
    headline="1.84x faster (1.79-1.88): data 62 % -> 3 %; now compute-bound in backward",
    outcome="faster",
    speedup=Range(1.84, 1.79, 1.88),
    notes=["other programs ran beside AFTER: its threads waited for a core 12 % of the time"],
    before=SIDE,
    after=replace(SIDE, runs=["runs/a.jsonl", "runs/b.jsonl"], warmup_s=0.0),
    unlike=[Unlike("DataLoader workers", "0", "4")],
    rows=[
        Row("step time", "ms", 41.5, 22.55, -18.95, -19.4, -18.4, True),
        Row("data", "ms", 25.7, 0.7, -25.0, -25.2, -24.8, True, estimated=True),
        Row("other", "ms", 0.0, 0.25, 0.25, -0.1, 0.6, False),
        Row("throughput", "1/s", 24.1, 44.3, 20.2, 19.0, 21.0, True),
        Row("host memory", "bytes", 2**30, 3 * 2**29, 2**29),
    ],
    lines=[
        LineChange("/a/t.py", 31, "augment", "out = \x1b[1mcv(img)", 24.0, 0.4, -23.6, -24.0, -23.0, True,
                   "data", "item", ["batch"]),
        LineChange("", 0, "", "", 3.1, 3.0, -0.1, -0.3, 0.1, False, "forward", "others", ["core"]),
    ],
    findings=[
        FindingChange("gone", "input_bound", "no_workers", "critical", "62 % of every step waits", 0.62),
        FindingChange("stays", "gc_pauses", None, "warning", "pauses", 0.04, 0.08),
    ],
    promise=Promise("input_bound", "num_workers 0 -> 4", Range(2.2, 1.8, 2.4), Range(1.84, 1.79, 1.88), "kept"),
)  # fmt: skip


def test_all_of_it() -> None:
    assert (
        text_diff(FOUND)
        == """\
1.84x faster (1.79-1.88): data 62 % -> 3 %; now compute-bound in backward
Estimated 2.2x (1.8-2.4), measured 1.84x: as promised (INPUT-BOUND:
  num_workers 0 -> 4)

before  runs/before.jsonl: 1,240 steps, 1m02s, without 2.0s of warm-up
after   2 runs, the first runs/a.jsonl: 1,240 steps, 1m02s

- other programs ran beside AFTER: its threads waited for a core 12 % of the
  time

Also different
  DataLoader workers: 0 -> 4

                      before      after      change   95 % interval
step time            41.5 ms    22.6 ms       -46 %   -47 % to -44 %
data (samples)       25.7 ms    0.70 ms       -97 %   -98 % to -96 %
other                   0 ms    0.25 ms   ~+0.25 ms   -0.10 ms to 0.60 ms
throughput            24.1/s     44.3/s       +84 %   +79 % to +87 %
host memory            1 GiB    1.5 GiB       +50 %
~ may be chance: the error of all rows together is 5 %

Where a step's time goes, in ms; waits are under what they waited for
  data, worker: t.py:31 out = cv(img)            24.0 ->   0.40      -23.60 ms
  forward, waits for a core, other programs       3.1 ->    3.0      ~-0.10 ms

Findings
  gone:  INPUT-BOUND (critical, no_workers), 62 % of the step
  stays: GC-PAUSES (warning), 4 % -> 8 % of the step
"""
    )


@pytest.mark.parametrize(
    ("row", "line"),
    [
        # what is many times as much is a factor
        (Row("other", "ms", 0.01, 6.6, 6.59, 6.0, 7.0, True),
         "other                0.01 ms     6.6 ms        660x   601x to 701x"),
        (Row("data", "ms", 0.01, 0.10, 0.09, -0.005, 0.12, False),
         "data                 0.01 ms    0.10 ms     ~+900 %   -50 % to 13x"),
        # checkpoints have no interval
        (Row("checkpoints", "1", 20.0, 10.0, -10.0), "checkpoints             20.0       10.0       -50 %"),
        (Row("checkpoint rate", "bytes/s", 2.0 * (1 << 30), 3.0 * (1 << 30), 1.0 * (1 << 30)),
         "checkpoint rate      2 GiB/s    3 GiB/s       +50 %"),
        # an interval that allows for anything is none
        (Row("step time", "ms", 100.0, 170.0, 70.0, -99.99, 2.13e6, False),
         "step time             100 ms     170 ms      ~+70 %   cannot tell"),
        (Row("throughput", "1/s", 10.0, 5.9, -4.1, -8.9, 95.0, False),
         "throughput            10.0/s      5.9/s      ~-41 %   -89 % to 10.5x"),
    ],
)  # fmt: skip
def test_a_row_with_its_change_and_interval(row: Row, line: str) -> None:
    assert line in text_diff(replace(FOUND, rows=[row])).splitlines()


@pytest.mark.parametrize("via", get_args(Via))
@pytest.mark.parametrize("doing", get_args(Doing))
def test_every_kind_of_cell_has_words(via: Via, doing: Doing) -> None:
    change = LineChange("", 0, "", "", 3.1, 3.0, -0.1, -0.3, 0.1, False, "data", doing, [via])
    (line,) = (row for row in text_diff(replace(FOUND, lines=[change])).splitlines() if "data, " in row)
    assert line.startswith("  data, ") and line.endswith("3.1 ->    3.0      ~-0.10 ms")


@pytest.mark.parametrize("columns", [40, 78, 100, 120])
def test_a_wider_terminal_shows_more_of_each_line(columns: int) -> None:
    code = "images, labels = augment(images.to(device), generator), labels.to(device)  # both at once"
    change = LineChange(
        "/a/a_long_name_of_a_module.py", 31, "main", code, 24.0, 0.4, -23.6, -24.0, -23.0, True, "data", "own"
    )
    rows = text_diff(replace(FOUND, lines=[change], notes=["word " * 60]), columns).splitlines()
    used = min(max(columns, 78), 100)
    (line,) = (row for row in rows if "a_long_name" in row)
    assert len(line) == used
    assert line.endswith("24.0 ->   0.40      -23.60 ms")
    assert max(map(len, rows)) <= used
    assert ("images.to(device)" in line) == (used == 120)
