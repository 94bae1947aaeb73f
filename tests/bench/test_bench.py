"""The pure parts of bench/: the table, the statistics, the accounting of CPU time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from bench import monitor_cost, processes
from tests import waiting


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
