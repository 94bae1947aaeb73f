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
    variables = variables_of({"OMP_NUM_THREADS": value})
    assert variables.omp_num_threads == threads


def test_settings_for_debugging_in_the_environment():
    assert variables_of({"CUDA_LAUNCH_BLOCKING": "1"}).debug_settings == ("launch_blocking",)
    assert variables_of({"CUDA_LAUNCH_BLOCKING": None, "TORCH_DISTRIBUTED_DEBUG": "OFF"}).debug_settings == ()


def variables_of(values):
    """Of a process that was started with these variables; None: without that one."""
    environ = {name: text for name, text in os.environ.items() if name not in values}
    environ |= {name: value for name, value in values.items() if value is not None}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun: before that its variables cannot be read
        facts = read_facts(process.pid, "python")
        process.communicate(b"\n")
    assert facts is not None
    assert facts.variables is not None
    return facts.variables
