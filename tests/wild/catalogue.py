"""The programs: each once healthy, and once with the slow work that is planted in it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from tests.scenarios.catalogue import Scenario, read

PROGRAMS = Path(__file__).parent / "programs"
HEALTHY = "_healthy"
_PACKAGE = re.compile(r"^# package: (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Program(Scenario):
    """A program with its slow work, or without it."""

    package: str
    planted: bool

    @property
    def installed(self) -> bool:
        """Whether its framework is there."""
        return importlib.util.find_spec(self.package) is not None

    def command(self, python: str, seconds: float, fixed: bool = False) -> list[str]:
        planted = ["--planted"] if self.planted and not fixed else []
        return [python, str(self.path), f"--seconds={seconds:g}", *planted]


def catalogue() -> dict[str, Program]:
    """All by name."""
    found: list[Program] = []
    for path in sorted(PROGRAMS.glob("*.py")):
        package = _PACKAGE.search(path.read_text())
        if package is None:  # what the programs share
            continue
        slow = read(path)
        found.append(Program(path.stem, path, slow.rule, slow.cause, slow.lines, 0, True, package[1], True))
        found.append(Program(path.stem + HEALTHY, path, None, None, frozenset(), 0, False, package[1], False))
    return {program.name: program for program in found}
