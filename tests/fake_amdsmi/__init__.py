"""amdsmi without a GPU: the real binding over a fake ``libamd_smi.so`` (see amdsmi.c for the scenario's keys)."""

import atexit
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import fake_nvml

_HERE = Path(__file__).parent
_SCENARIO = Path(fake_nvml.__file__).parent
_LIBRARY = "libamd_smi.so"


@functools.cache
def build() -> Path:
    """Compile the library once; skips the test without a C compiler or the package amdsmi."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    package = importlib.util.find_spec("amdsmi")
    if compiler is None or package is None or package.origin is None:
        pytest.skip("no C compiler (cc), or no package amdsmi")
    directory = Path(tempfile.mkdtemp(prefix="tuimon-fake-amdsmi-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    (directory / "lib").mkdir()
    out = directory / "lib" / _LIBRARY
    stubs, types = directory / "stubs.c", directory / "types.h"
    # the binding looks all of its functions up as soon as it is imported: at first none of them does anything ...
    wrapper = Path(package.origin).with_name("amdsmi_wrapper.py").read_text()
    names = sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)))
    stubs.write_text("".join(f"__attribute__((weak)) int {name}(void) {{ return 2; }}\n" for name in names))
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wl,-Bsymbolic", "-o", out, stubs]
    subprocess.run(command, check=True, timeout=60)
    env = {**os.environ, "ROCM_HOME": str(directory)}
    declared = subprocess.run(
        [sys.executable, _HERE / "structures.py"], env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    # ... which is enough to ask it for its structures
    types.write_text(declared.stdout)
    sources = [_HERE / "amdsmi.c", _SCENARIO / "scenario.c"]
    subprocess.run([*command, *sources, "-I", directory, "-I", _SCENARIO], check=True, timeout=60)
    return out


def install(directory: Path) -> dict[str, str]:
    """Put the library where a process with these variables finds it, beside that of the scenario."""
    (directory / "lib").mkdir(exist_ok=True)
    shutil.copy(build(), directory / "lib" / _LIBRARY)
    return {"ROCM_HOME": str(directory)}


class FakeAmdSmi(fake_nvml.FakeNvml):
    """A process of its own in which a real GpuSource reads the fake library, one read at a time."""

    DRIVER = "amdsmi"

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "ROCM_HOME": str(self.directory)}

    def install(self) -> None:
        install(self.directory)


def usual(index: int) -> dict[str, object]:
    """The lines of an AMD GPU that computes; the first has the index 0 here."""
    lines: dict[str, object] = {
        "name": "AMD Fake MI300X",
        "uuid": f"GPU-f0000000000000a{index}",
        "bdf": f"{0xC0 + index:x}",
        "average_gfx_activity": 83,
        "memory_total_mib": 196592,
        "memory_used_mib": 65536,
        "current_socket_power": 612,
        "power_cap_uw": 750_000_000,
        "energy_accumulator": 1_000_000,
        "temperature_hotspot": 74,
        "temperature_mem": 61,
        "current_gfxclk": 1890,
        "gfx_clock_max": 2100,
        "pcie_link_width": 16,
        "pcie_link_speed": 320,
        "ecc": 0,
        "pids": "4242:60000",
    }
    return {f"{8 + index}.{key}": value for key, value in lines.items()}
