"""What ``python -m bench.gpu`` needs beside torch: looked for before anything is imported that needs it."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
#: Of the group ``test``, what the tests marked ``gpu`` and the demos need; of the runtime's dependencies, all.
_FOR_TESTS = ("numpy", "pytest", "pytest-asyncio", "pytest-timeout")
_LISTS = re.compile(r"^(dependencies|test) = \[\n(.*?)^\]", re.MULTILINE | re.DOTALL)
_REQUIREMENT = re.compile(r'"([A-Za-z0-9._-]+)([^";]*)')


def requirements() -> dict[str, str]:
    """Name -> requirement as pip reads it, with the bounds of ``pyproject.toml``."""
    lists = dict(_LISTS.findall(PROJECT.read_text(encoding="utf-8")))
    found = {name: name + bounds for name, bounds in _REQUIREMENT.findall(lists["dependencies"])}
    tests = {name: name + bounds for name, bounds in _REQUIREMENT.findall(lists["test"])}
    return found | {name: tests[name] for name in _FOR_TESTS}


def missing() -> list[str]:
    """Requirements of which nothing is installed; their versions are pip's to check."""
    return [requirement for name, requirement in requirements().items() if not _is_installed(name)]


def how_to_install(wanted: list[str]) -> str:
    """One line: pip's words, with a network and without."""
    words = " ".join(f"'{requirement}'" for requirement in wanted)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"{sys.executable} -m pip install {words}; without a network, elsewhere: python3 -m bench.gpu --wheels >"
        f" wheels.txt; pip download --only-binary :all: --python-version {version} --dest wheels -r wheels.txt; and"
        " here: pip install --no-index --find-links wheels -r wheels.txt"
    )


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
