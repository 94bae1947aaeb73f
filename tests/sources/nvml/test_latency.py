"""The latency table of ``make gpu-check``, on the fake NVML library: every call that tuimon makes is in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fake_nvml import Scenario, modern, usual

_MEASURE = (
    "from bench.gpu import nvml_latency; [print(row.what) for row in nvml_latency.measure(2, 60, lambda _: None)]"
)


def test_every_call_is_measured(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    scenario.set(devices=1, driver="580.65.06", **usual(0))
    scenario.set({**modern(0), "0.process_samples": "4242:1000:50", "0.samples": "1000:50"})
    scenario.count_calls()
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE],
        cwd=root,
        env={**os.environ, **scenario.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    measured = {line.split()[1].rstrip(",") for line in done.stdout.splitlines()}
    made = {name.partition("_v")[0] for name in scenario.count_calls()}
    assert {"nvmlGpmMetricsGet", "nvmlEventSetWait", "nvmlDeviceGetProcessUtilization"} <= made
    assert made - {name.partition("_v")[0] for name in measured} == {"nvmlInitWithFlags"}  # of nvmlInit
    assert "field 185 alone, 2 calls" in done.stdout
