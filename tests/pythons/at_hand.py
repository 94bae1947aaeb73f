"""The Pythons of this machine: what ``TUIMON_TEST_PYTHONS`` names, this one, what is on PATH, what pyenv has."""

from __future__ import annotations

import functools
import glob
import json
import os
import shutil
import subprocess
import sys

import pytest

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
FREE_THREADED = ("3.13t", "3.14t")
#: Older than tuimon supports: a program in one must run under ``tuimon run`` as if tuimon were not there.
OLD = ("2.7", "3.6", "3.7", "3.8")

_ASK = """
import json, os, sys, sysconfig
version = "%d.%d" % sys.version_info[:2] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")
print(json.dumps([version, os.path.realpath(sys.executable)]))
"""


def python(version: str) -> str:
    """The interpreter of a version; skips the test when none is at hand."""
    found = _at_hand().get(version)
    if found is None:
        pytest.skip(f"no Python {version} at hand: name one in TUIMON_TEST_PYTHONS")
    return found


@functools.cache
def _at_hand() -> dict[str, str]:
    """Interpreters by version; the first named wins."""
    named = [path for path in os.environ.get("TUIMON_TEST_PYTHONS", "").split(os.pathsep) if path]
    on_path = [path for each in (*VERSIONS, *FREE_THREADED, *OLD) if (path := shutil.which(f"python{each}"))]
    pyenv = os.path.expanduser(os.environ.get("PYENV_ROOT") or "~/.pyenv")
    found: dict[str, str] = {}
    for path in (*named, sys.executable, *on_path, *sorted(glob.glob(f"{pyenv}/versions/*/bin/python"))):
        try:
            # without the tests' own environment, a pyenv shim may stand for no version
            done = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=30, check=True)
            version, real = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        found.setdefault(version, real)
    return found
