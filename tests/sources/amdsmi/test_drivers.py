"""Which vendor's driver is used, by the libraries that a machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fake_amdsmi
from tests.fake_nvml import Scenario

NO_OTHERS = """
import ctypes, sys

def of_the_test(name, *more, load=ctypes.CDLL, **options):
    if name and not str(name).startswith(sys.argv[1]) and "libamd_smi" in str(name) or name in sys.argv[2:]:
        raise OSError(f"{name}: cannot open shared object file")
    return load(name, *more, **options)

ctypes.CDLL = of_the_test
from tuimon.sources.gpu_drivers import gpu_sources
"""
DRIVERS = """
from tuimon.sources.process_table import ProcessTable
names = [(source.name, source._driver.name) for source in gpu_sources(ProcessTable(1, None), 1.0)]
print(*names, "amdsmi" in sys.modules, "pynvml" in sys.modules)
"""


def said(code: str, directory: Path, *missing: str, **variables: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROCM_")}
    command = [sys.executable, "-c", NO_OTHERS + code, str(directory), *missing]
    return subprocess.run(command, env=env | variables, capture_output=True, text=True, timeout=60, check=True).stdout


def test_nvml_is_asked_where_there_is_no_library(tmp_path: Path) -> None:
    assert said(DRIVERS, tmp_path, "libnvidia-ml.so.1") == "('gpu', 'nvml') False False\n"


def test_amd_alone_and_beside_nvml(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    rocm = fake_amdsmi.install(tmp_path)
    assert said(DRIVERS, tmp_path, "libnvidia-ml.so.1", **rocm) == "('gpu', 'amdsmi') False False\n"
    both = said(DRIVERS, tmp_path, **rocm, LD_LIBRARY_PATH=scenario.environment["LD_LIBRARY_PATH"])
    assert both == "('gpu', 'nvml') ('amdsmi', 'amdsmi') False False\n"  # neither replaces the other's notices


def test_a_library_beside_the_binding_is_found(tmp_path: Path) -> None:
    (tmp_path / "modules/amdsmi").mkdir(parents=True)
    (tmp_path / "modules/amdsmi/__init__.py").touch()
    shutil.copy(fake_amdsmi.build(), tmp_path / "modules/amdsmi")
    code = f"sys.path.insert(0, {str(tmp_path / 'modules')!r})\n" + DRIVERS
    assert said(code, tmp_path, "libnvidia-ml.so.1") == "('gpu', 'amdsmi') False False\n"


OPENED = """
from tuimon.sources.amdsmi.driver import AmdSmi
from tuimon.sources.gpus.handle import DriverError
try:
    AmdSmi().open(None, "")
except DriverError as error:
    print(AmdSmi().explain(error).message)
"""


def test_a_machine_without_the_library_is_not_told_by_the_binding(tmp_path: Path) -> None:
    assert said(OPENED, tmp_path) == "no AMD driver on this machine (libamd_smi.so not found)\n"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("raise ImportError('none')", "no figures of AMD GPUs: the package amdsmi is not installed\n"),
        (
            "raise AttributeError('undefined symbol: amdsmi_get_gpu_news')",
            "no figures of AMD GPUs: the package amdsmi and libamd_smi.so have different versions\n",
        ),
        ("pass", "no figures of AMD GPUs: the package amdsmi and libamd_smi.so have different versions\n"),
    ],
)
def test_a_binding_that_is_missing_or_does_not_fit(tmp_path: Path, module: str, message: str) -> None:
    rocm = fake_amdsmi.install(tmp_path)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/amdsmi.py").write_text(module)
    code = f"sys.path.insert(0, {str(tmp_path / 'modules')!r})\n" + OPENED
    assert said(code, tmp_path, **rocm) == message
