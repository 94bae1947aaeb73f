"""The labelled scripts: the finding that each expects, read from the comments in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.scenarios.gains import of_best_fix
from tuimon.diagnosis.finding import Finding

SCRIPTS = Path(__file__).parent / "scripts"

_LABEL = re.compile(r"^# (expects|launch|healthy)(?:: (.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Scenario:
    """One script and its truth: the rule and cause that must be primary, the lines of which one must be named."""

    name: str
    path: Path
    rule: str | None  # None: healthy
    cause: str | None
    lines: frozenset[int]  # empty: no line is to blame
    ranks: int  # 0: a plain script
    fixable: bool

    def command(self, python: str, seconds: float, fixed: bool = False) -> list[str]:
        """How it is started."""
        launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={self.ranks}"] if self.ranks else []
        return [python, *launcher, str(self.path), f"--seconds={seconds:g}", *(["--fixed"] if fixed else [])]

    def predicted(self, finding: Finding) -> float | None:
        """The gain that is held against that of its fixed form."""
        return of_best_fix(finding)


def catalogue() -> dict[str, Scenario]:
    """All scenarios by name."""
    scenarios = (read(path) for path in sorted(SCRIPTS.glob("*.py")) if path.name != "laps.py")
    return {scenario.name: scenario for scenario in scenarios}


def read(path: Path) -> Scenario:
    """The scenario of a script, from its labels."""
    text = path.read_text()
    labels = {match[1]: match[2] or "" for match in _LABEL.finditer(text)}
    rule, _, cause = labels.get("expects", "").partition("/")
    assert bool(rule) != ("healthy" in labels), f"{path.name} states neither what it expects nor that it is healthy"
    lines = frozenset(n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# <- cause"))
    ranks = int(labels["launch"].removeprefix("torchrun ")) if "launch" in labels else 0
    return Scenario(path.stem, path, rule or None, cause or None, lines, ranks, "args.fixed" in text)
