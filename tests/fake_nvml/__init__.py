"""NVML without a GPU: the real pynvml over a fake ``libnvidia-ml.so.1`` (see fake_nvml.c for the scenario's keys)."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from tuimon.records import AnyRecord

_SOURCE = Path(__file__).with_name("fake_nvml.c")
_LIBRARY = "libnvidia-ml.so.1"
_decoder = msgspec.json.Decoder(list[AnyRecord])


@functools.cache
def build() -> Path:
    """Compile the library once; skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the fake NVML library with")
    directory = tempfile.mkdtemp(prefix="tuimon-fake-nvml-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    out = Path(directory) / _LIBRARY
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{_LIBRARY}", "-o", out, _SOURCE], check=True, timeout=60
    )
    return out


class FakeNvml:
    """A process of its own in which a real GpuSource reads the fake library, look by look."""

    def __init__(self, directory: Path, *, installed: bool = True) -> None:
        self._directory = directory
        self._scenario = directory / "scenario"
        self._lines: dict[str, str] = {}
        self._scenario.touch()
        if installed:
            self.install()
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(directory),
            "FAKE_NVML_SCENARIO": str(self._scenario),
        }
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("looks.py")],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def install(self) -> None:
        """Put the library where the process finds it."""
        shutil.copy(build(), self._directory / _LIBRARY)

    def set(self, **lines: object) -> None:
        """Change keys of the scenario: ``power_mw`` of GPU 0 is ``gpu0_power_mw``; None takes a key out."""
        for name, value in lines.items():
            key = name[3:].replace("_", ".", 1) if name.startswith("gpu") else name
            key = key.replace("error_nvml", "error.nvml")
            if value is None:
                self._lines.pop(key, None)
            else:
                self._lines[key] = str(value)
        whole = self._scenario.with_suffix(".new")
        whole.write_text("".join(f"{key} {value}\n" for key, value in self._lines.items()))
        whole.rename(self._scenario)

    def look(self, now_s: float, **facts: object) -> list[AnyRecord]:
        """What ``GpuSource.read`` returns at this time. ``facts``: what the run's processes say of themselves."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(msgspec.json.encode({"now_s": now_s, "facts": facts}).decode() + "\n")
        self._process.stdin.flush()
        return _decoder.decode(self._process.stdout.readline())

    def close(self) -> None:
        """End the process; it must end well."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(20) == 0


def usual(index: int) -> dict[str, object]:
    """The lines of a GPU that supports everything and computes."""
    lines: dict[str, object] = {
        "name": "NVIDIA Fake 80GB",
        "uuid": f"GPU-0000000{index}-fake",
        "util": 37,
        "memory_total_mib": 81920,
        "memory_used_mib": 20480,
        "memory_reserved_mib": 512,
        "power_mw": 310500,
        "power_limit_mw": 700000,
        "temperature": 61,
        "sm_clock": 1755,
        "sm_clock_max": 1980,
        "event_reasons": "0x1",
        "pids": 4242,
    }
    return {f"gpu{index}_{key}": value for key, value in lines.items()}
