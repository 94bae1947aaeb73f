"""Runs a command on a machine with fake GPUs, for looking at panes: ``python -m tests.fake_nvml [GPUS] COMMAND...``.

Their figures move; nothing of them is true, as their names say. GPU 0 counts as the run's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fake_nvml import Scenario, modern, usual


def lively(scenario: Scenario, count: int) -> None:
    """So many GPUs whose figures move, of which the first computes."""
    scenario.set({"devices": count, "driver": "580.65.06"})
    for index in range(count):
        scenario.set(modern(index), **usual(index))
        scenario.set(_moving(index, busy=index == 0))


def _moving(index: int, *, busy: bool) -> dict[str, object]:
    """What moves of one GPU; power, bytes and time go on from when the library was loaded."""
    load = (55, 100) if busy else (0, 3)
    lines: dict[str, object] = {
        "util": f"wave {load[0]} {load[1]} 11",
        "memory_used_mib": f"wave {30000 if busy else 500} {52000 if busy else 520} 47",
        "temperature": f"wave {58 if busy else 31} {83 if busy else 33} 61",
        "sm_clock": f"wave {1410 if busy else 345} {1980 if busy else 345} 9",
        "gpm.2": f"wave {load[0] * 0.8} {load[1] * 0.9} 11",
        "gpm.3": f"wave {load[0] * 0.3} {load[1] * 0.5} 11",
        "gpm.5": f"wave {load[0] * 0.1} {load[1] * 0.3} 7",
        "gpm.10": f"wave {load[0] * 0.4} {load[1] * 0.7} 13",
        "field.186": f"wave {300000 if busy else 70000} {690000 if busy else 72000} 11",
        "field.185": f"wave {380000 if busy else 70000} {610000 if busy else 71000} 11",
        "field.83": f"ramp 1000000 {500000 if busy else 70000}",
        "field.197": f"ramp 0 {4e8 if busy else 0}",
        "field.198": f"ramp 0 {9e9 if busy else 0}",
        "field.138": f"ramp 0 {2e7 if busy else 0}",
        "field.139": f"ramp 0 {2e7 if busy else 0}",
        "field.74": f"ramp 0 {2.1e8 if busy else 0}",
        "field.269": f"ramp 0 {4e7 if busy else 0}",
        "event_reasons": "0x4" if busy else "0x1",
    }
    return {f"{index}.{key}": value for key, value in lines.items()}


def main(arguments: list[str]) -> int:
    """The command's exit code."""
    count = int(arguments.pop(0)) if arguments and arguments[0].isdecimal() else 2
    if not arguments:
        sys.stderr.write(__doc__ or "")
        return 2
    with tempfile.TemporaryDirectory(prefix="tuimon-fake-gpus-") as directory:
        scenario = Scenario(Path(directory))
        lively(scenario, count)
        visible = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return subprocess.run(arguments, env={**os.environ, **visible, **scenario.environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
