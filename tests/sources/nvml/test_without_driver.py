"""A machine without the NVIDIA driver: pynvml, 2 MB of it, stays out."""

import subprocess
import sys

CODE = """
import ctypes, sys

def none(name, *more, load=ctypes.CDLL, **options):
    if name == "libnvidia-ml.so.1":
        raise OSError(f"{name}: cannot open shared object file")
    return load(name, *more, **options)

ctypes.CDLL = none
from tuimon.sources.nvml.library import Library, NvmlError
from tuimon.sources.nvml.problems import explain

try:
    Library()
except NvmlError as error:
    print(explain(error).message)
print("pynvml" in sys.modules)
"""


def test_it_is_not_imported_to_find_that_out():
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines() == [
        "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)",
        "False",
    ]
