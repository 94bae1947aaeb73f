"""NVML without a GPU: the real pynvml over a fake ``libnvidia-ml.so.1`` (see scenario.c for the scenario's keys)."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tuimon.records import AnyRecord, Gpu, Notice, Record

_HERE = Path(__file__).parent
_LIBRARY = "libnvidia-ml.so.1"
_decoder = msgspec.json.Decoder(list[AnyRecord])


@functools.cache
def build(*, old_driver: bool = False) -> Path:
    """Compile the library once; skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        import pytest  # programs on frameworks run where there is none

        pytest.skip("no C compiler (cc) to build the fake NVML library with")
    directory = tempfile.mkdtemp(prefix="tuimon-fake-nvml-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    out = Path(directory) / _LIBRARY
    flags = ["-shared", "-fPIC", "-O1", "-Wl,-Bsymbolic", f"-Wl,-soname,{_LIBRARY}"]
    flags += ["-DOLD_DRIVER"] if old_driver else []
    subprocess.run([compiler, *flags, "-o", out, *sorted(_HERE.glob("*.c"))], check=True, timeout=60)
    return out


class Scenario:
    """The file that the fake library in a directory answers from."""

    def __init__(self, directory: Path, *, installed: bool = True, old_driver: bool = False) -> None:
        self.directory = directory
        self.old_driver = old_driver
        self.file = directory / "scenario"
        self.lines: dict[str, str] = {}
        self.file.touch()
        if installed:
            self.install()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find the library and its scenario."""
        return {"LD_LIBRARY_PATH": str(self.directory), "FAKE_NVML_SCENARIO": str(self.file)}

    def install(self) -> None:
        """Put the library where the process finds it."""
        shutil.copy(build(old_driver=self.old_driver), self.directory / _LIBRARY)

    def set(self, keys: Mapping[str, object] | None = None, **more: object) -> None:
        """Change keys; None takes one out. ``gpu0_power_mw=1`` is ``{"0.power_mw": 1}``."""
        for name, value in {**(keys or {}), **{_key(name): value for name, value in more.items()}}.items():
            self.lines.pop(name, None)
            if value is not None:
                self.lines[name] = str(value)
        whole = self.file.with_suffix(".new")
        whole.write_text("".join(f"{key} {value}\n" for key, value in self.lines.items()))
        whole.rename(self.file)

    def count_calls(self) -> Counter[str]:
        """How often each function was called since the last call of this."""
        log = self.directory / "calls"
        counted = Counter(log.read_text().split()) if log.exists() else Counter[str]()
        log.write_text("")
        self.set({"calls": log})
        return counted


class FakeNvml(Scenario):
    """A process of its own in which a real GpuSource reads the fake library, one read at a time.

    Its /sys is in the directory.
    """

    DRIVER = "nvml"

    def __init__(
        self,
        directory: Path,
        *,
        installed: bool = True,
        old_driver: bool = False,
        call_timeout_s: float = 60.0,
        visible_devices: str | None = None,
        costs: bool = False,
    ) -> None:
        """``costs``: calls that take long are made less often, so that a busy machine changes what is read."""
        super().__init__(directory, installed=installed, old_driver=old_driver)
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        if visible_devices is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible_devices
        options = (str(call_timeout_s), str(int(costs)), str(directory), self.DRIVER)
        self.process = subprocess.Popen(
            [sys.executable, _HERE / "reads.py", *options],
            env={**env, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The one process of its run."""
        return self.process.pid

    def read(self, now_s: float, **facts: object) -> list[Record]:
        """What ``GpuSource.read`` returns at this time. ``facts``: what the run's processes report of themselves."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(msgspec.json.encode({"now_s": now_s, "facts": facts}).decode() + "\n")
        self.process.stdin.flush()
        return _decoder.decode(self.process.stdout.readline())

    def close(self) -> None:
        """End the process; it must end well."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(20) == 0


def _key(name: str) -> str:
    key = name[3:].replace("_", ".", 1) if name.startswith("gpu") else name
    return key.replace("error_nvml", "error.nvml").replace("delay_nvml", "delay.nvml")


def usual(index: int) -> dict[str, object]:
    """The lines of a GPU that supports what all do, and computes."""
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
        "pids": "4242:19000",
    }
    return {f"gpu{index}_{key}": value for key, value in lines.items()}


def modern(index: int) -> dict[str, object]:
    """Beside ``usual``: what a data centre GPU of today has."""
    lines: dict[str, object] = {
        "capability": "9.0",
        "ecc": 0,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_replays": 7,
        "remapped_rows": "0 1 0 0",
        "power_limit_default_mw": 700000,
        "xids": "",
        "gpm": 1,
        "gpm.2": 91.5,
        "gpm.3": 40.25,
        "gpm.5": 12,
        "gpm.10": 55.5,
        "gpm.20": 100,
        "gpm.21": 2000,
        "field.186": 402000,
        "field.185": 398000,
        "field.83": 1_000_000,
        "field.82": 74,
        "field.197": 10_000_000_000,
        "field.198": 50_000_000_000,
        "field.138": 1_000_000,
        "field.139": 2_000_000,
        "field.74": 5_000_000_000,
        "field.76": 0,
        "field.269": 0,
        "field.270": 0,
        "field.271": 0,
    }
    return {f"{index}.{key}": value for key, value in lines.items()}


#: A GPU that computes: what moves of it. Power, bytes and time go on from when the library was loaded.
MOVING = {
    "0.util": "wave 55 100 11", "0.memory_used_mib": "wave 30000 52000 47", "0.temperature": "wave 58 83 61",
    "0.sm_clock": "wave 1410 1980 9", "0.gpm.2": "wave 44 90 11", "0.gpm.3": "wave 16.5 50 11",
    "0.gpm.5": "wave 5.5 30 7", "0.gpm.10": "wave 22 70 13", "0.field.186": "wave 300000 690000 11",
    "0.field.185": "wave 380000 610000 11", "0.field.83": "ramp 1000000 500000", "0.field.197": "ramp 0 4e8",
    "0.field.198": "ramp 0 9e9", "0.field.138": "ramp 0 2e7", "0.field.139": "ramp 0 2e7",
    "0.field.74": "ramp 0 2.1e8", "0.field.269": "ramp 0 4e7", "0.event_reasons": "0x4",
}  # fmt: skip


def gpus(records: list[Record]) -> list[Gpu]:
    """The GPUs' records."""
    return [record for record in records if isinstance(record, Gpu)]


#: When, the lines that have changed until then, and figures of the one record (None: there is none).
Reads = list[tuple[float, dict[str, object], dict[str, object] | None]]


def check_reads(fake: FakeNvml, reads: Reads) -> None:
    for now_s, lines, figures in reads:
        fake.set(lines)
        found = [{name: getattr(gpu, name) for name in figures or ()} for gpu in gpus(fake.read(now_s))]
        assert found == ([] if figures is None else [figures])


def notices(records: list[Record]) -> list[Notice]:
    """The source's notices."""
    return [record for record in records if isinstance(record, Notice)]
