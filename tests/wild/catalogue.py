"""The programs: each once healthy, and once with the slow work that is planted in it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from tests.scenarios.catalogue import Scenario, read
from tests.scenarios.gains import of_cheaper_line
from tuimon.diagnosis.finding import Finding

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

    def predicted(self, finding: Finding) -> float | None:
        """Of the work that is planted, as if it cost nothing: more workers are not what is measured."""
        return of_cheaper_line(finding)


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
