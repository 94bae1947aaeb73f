"""The trainings in ``programs/``: what tuimon says of each and of its fix, and what the fix gains.

The gain is measured without tuimon: the mean step as the program is, fixed, and as it is again, in one process.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.gpu import watched
from bench.overhead import Say
from bench.table import ABSENT

FOLDER = Path(__file__).with_name("programs")
HEADINGS = ("program", "expected", "verdict", "place", "gain told", "gain", "ms as it is/fixed/again", "")
_EXPECTS = re.compile(r"^# expects: (.+)$", re.MULTILINE)
#: A line of a program that must be the same with and without tuimon.
_DIGEST = re.compile(r"^weights after .+$", re.MULTILINE)


class Means(NamedTuple):
    """Mean step in ms."""

    as_it_is: float
    fixed: float
    again: float

    @property
    def gain(self) -> float:
        """Times as fast as the program as it is, on both sides of it."""
        return (self.as_it_is + self.again) / 2 / self.fixed


class ProgramRun(NamedTuple):
    """What came out of one program."""

    program: str
    expected: str
    verdict: str
    place: str
    told: str  # the gain; empty where none is told
    means: Means | None
    remark: str = ""

    def cells(self) -> tuple[str, ...]:
        """The texts of its line, one per heading."""
        gain = ABSENT if self.means is None else f"{self.means.gain:.2f}x"
        means_ms = ABSENT if self.means is None else " / ".join(f"{ms:.3g}" for ms in self.means)
        named = (self.verdict, self.place or ABSENT, self.told or ABSENT)
        return (self.program, self.expected, *named, gain, means_ms, self.remark)


def names() -> list[str]:
    """All programs."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if _EXPECTS.search(path.read_text(encoding="utf-8")))


def expected(program: str) -> str:
    """The rules that an expert would name, or none."""
    found = _EXPECTS.search(_path(program).read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def measure(
    seconds: float, gain_s: float, limit_s: float, out: Path, say: Say, programs: Sequence[str] | None = None
) -> Iterator[ProgramRun]:
    """Of as many as fit: what tuimon said after so long; then again, with the gain, from ``gain_s`` of each form."""
    begin_s = last_s = time.monotonic()
    longest_s = 0.0
    wanted = names() if programs is None else list(programs)
    for done, program in enumerate(wanted):
        if last_s - begin_s + longest_s > limit_s:
            say(f"no time for {', '.join(wanted[done:])}")
            return
        say(f"{program}: {seconds:g} s under tuimon, {gain_s:g} s as it is, fixed, and as it is again")
        yield from _tried(program, seconds, gain_s, out / f"{program}.jsonl")
        now_s = time.monotonic()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s


def _tried(program: str, seconds: float, gain_s: float, log: Path) -> Iterator[ProgramRun]:
    path = str(_path(program))
    seen = watched.watch(log, seconds, path, "--seconds", str(seconds))
    remarks = [f"under tuimon: {watched.reason(seen, log)}"] if seen.returncode else []
    verdict, place, told = _verdict(watched.findings(log)) if log.exists() else ("no log", "", "")
    run = ProgramRun(program, expected(program), verdict, place, told, None, "; ".join(remarks))
    yield run
    plain = watched.run([sys.executable, path, "--gain", "--seconds", str(gain_s)], 3 * gain_s + watched.SPARE_S)
    if plain.returncode:
        remarks.append(f"without: {watched.reason(plain)}")
    digests = {line for done in (seen, plain) for line in _DIGEST.findall(done.stdout)}
    if digests:
        remarks.append("the same weights with and without tuimon" if len(digests) == 1 else "OTHER WEIGHTS")
    yield run._replace(means=_means(plain.stdout), remark="; ".join(remarks))


def _verdict(findings: list[dict[str, Any]]) -> tuple[str, str, str]:  # as in docs/schema
    """Rule and severity, place and gain of the first finding."""
    if not findings:
        return "none", "", ""
    first = findings[0]
    where = first["where"][0] if first["where"] else None
    place = f"{where['function']}() {Path(where['file']).name}:{where['line']}" if where else ""
    return f"{first['rule']} ({first['severity']})", place, _told(first)


def _told(finding: dict[str, Any]) -> str:
    if not finding["fixes"]:
        return ""
    estimated, low, high = (finding["fixes"][0][name] for name in ("estimated_speedup", "low", "high"))
    if estimated is None:
        return "" if high is None else f"at most {high:.3g}x"
    if high is None:
        return f"at least {low:.3g}x"
    return f"{low:.3g}x" if high == low else f"{low:.3g} to {high:.3g}x"


def _means(output: str) -> Means | None:
    """From the line that ``--gain`` prints."""
    line = next((line for line in output.splitlines() if line.startswith('{"as_it_is_ms"')), None)
    return None if line is None else Means(*json.loads(line).values())


def _path(program: str) -> Path:
    return FOLDER / f"{program}.py"
