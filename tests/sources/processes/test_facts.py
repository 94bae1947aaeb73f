"""What is read of a process's variables."""

import os
import subprocess
import sys

import pytest

from tuimon.sources.processes.facts import read_facts


@pytest.mark.parametrize(
    ("value", "threads"), [("8", 8), ("4,2", 4), ("", None), ("0", None), ("-1", None), ("many", None), (None, None)]
)
def test_omp_num_threads_in_the_environment(value, threads):
    environ = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    environ |= {} if value is None else {"OMP_NUM_THREADS": value}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun: before that its variables cannot be read
        facts = read_facts(process.pid, "python")
        process.communicate(b"\n")
    assert facts is not None
    assert facts.variables is not None
    assert facts.variables.omp_num_threads == threads
