"""The pure parts of bench/: the table, the statistics, the accounting of CPU time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from bench import monitor_cost, peers, processes, table
from bench.table import Row, Spread
from tests import waiting

RATIO = Spread(1.01, 1.0, 1.02, 9)


def test_spread_is_median_and_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 3.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1) and Spread.of([]) is None


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("x", 1.02, RATIO), "ok"),
        (Row("x", 1.003, RATIO), "over"),
        (Row("x", 1.003, RATIO, noise=Spread(1.0, 0.99, 1.01, 9)), "over? (within the noise)"),
        (Row("x", 1.003, RATIO, noise=Spread(1.0, 0.999, 1.001, 9)), "over"),
        (Row("x", None, RATIO), ""),
        (Row("x", 1.02, None), "not measured"),
        (Row("x", 0.5, None, why_absent="no frame in 2 of 2 starts"), "no frame in 2 of 2 starts"),
    ],
)
def test_judged(row: Row, verdict: str) -> None:
    assert table.judged(row) == verdict


def test_render() -> None:
    rows = [
        Row("a step", 1.02, RATIO, Spread(0.9999, 0.998, 1.001, 9), "x"),
        Row("memory", 80.0, Spread.of([61.234]), unit="MB"),
        Row("first frame", 0.5, None, unit="s"),
    ]
    assert table.render(rows).splitlines() == [
        "what         promise   measured                    noise",
        "-" * 91,
        "a step       <= 1.02x  1.0100x [1.0000 .. 1.0200]  0.9999x [0.9980 .. 1.0010]  ok",
        "memory       <= 80 MB  61.2 MB                     –                           ok",
        "first frame  <= 0.5 s  –                           –                           not measured",
    ]


def test_usage_counts_a_child_once_it_was_waited_for() -> None:
    before = processes.usage(os.getpid())
    busy = "sum(range(20_000_000)); input()"
    child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE)
    assert child.pid in processes.descendants(os.getpid())
    # a moment after the exec there is none yet
    command = waiting.until(lambda: processes.command_line(child.pid), "its command line")
    assert command[0] == sys.executable
    child.communicate(b"\n")
    after = processes.usage(os.getpid())
    assert after.reaped_s > before.reaped_s
    assert child.pid not in processes.descendants(os.getpid())
    assert (processes.descendants(child.pid), processes.command_line(child.pid)) == ([], [])


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/python")
    found, missing = peers.variants()
    assert [variant.name for variant in found] == ["torch.profiler"]
    assert "TraceML" in missing and "memray, aggregated" in missing and "scalene, CPU" in missing


def test_py_spy_is_no_part_of_the_training_and_of_the_monitor(tmp_path: object) -> None:
    training = f"{tmp_path}/training.py"
    with open(training, "w") as file:
        file.write("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'input()'])\n")
    case = monitor_cost.Case("a training", (training,))
    monitor = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, sys.argv[1]], stdin=0)\n"
        "beside = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0)\n"
        "print(beside.pid, flush=True)\nbeside.wait()\n"
    )
    command = [sys.executable, "-c", monitor, training]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        beside = int(process.stdout.readline())
        waiting.until(lambda: len(processes.descendants(process.pid)) == 3)
        assert monitor_cost.watchers(process.pid, case) == [beside]
        process.stdin.write("\n\n\n")
        process.stdin.close()
        for pid in processes.descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):  # they are ending anyhow
                os.kill(pid, 9)
