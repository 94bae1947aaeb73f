"""How often the verdicts on labelled programs are right: the tables of docs/accuracy.md, for docs.make_figures."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.gpu import program_runs
from docs.cases import CASES
from tests.recorded_logs import LOGS
from tests.scenarios.catalogue import catalogue
from tests.scenarios.judging import HEALTHY, fold, name_of
from tests.scenarios.streams import STREAMS, simulate, write
from tuimon.diagnosis.finding import Finding
from tuimon.views.finding_text import times_text

_HEADS = ("program", "expected", "first verdict", "place", "predicted", "measured", "settled after")
#: Of a simulated training: enough for verdicts to settle.
_SIMULATED_S = 10.0


class Labelled(NamedTuple):
    """A log and its truth: the rules of which one must be first (none: healthy), and the lines to blame, if any."""

    program: str
    log: Path
    rules: tuple[str, ...]
    lines: frozenset[int] = frozenset()
    gain: float | None = None  # of the fix, measured

    def is_right(self, finding: Finding | None) -> bool:
        """Whether this may be the first finding."""
        if not self.rules:
            return finding is None or finding.rule in HEALTHY or finding.severity in ("info", "benign")
        return finding is not None and (finding.rule in self.rules or name_of(finding) in self.rules)

    def is_right_place(self, finding: Finding | None) -> bool | None:
        """Whether it names a line that is to blame; None where none is."""
        if not self.lines:
            return None
        return finding is not None and any(place.line in self.lines for place in finding.where[:1])


def _scripts() -> Iterator[Labelled]:
    simulated = {re.sub(r"\W+", "_", stream.name) for stream in STREAMS}  # some of their logs are there as well
    recorded = {_name(path): path for path in LOGS}
    for one in catalogue().values():
        log = recorded.get(one.name)
        if log is not None and one.name not in simulated:
            expected = f"{one.rule}/{one.cause}" if one.cause else one.rule
            yield Labelled(one.name, log, (expected,) if expected else (), one.lines)


def _simulated() -> Iterator[Labelled]:
    with tempfile.TemporaryDirectory() as folder:
        for number, stream in enumerate(STREAMS):
            outcome = write(stream, Path(folder) / f"{number}.jsonl", _SIMULATED_S)
            gain = None
            if stream.fixed is not None:
                gain = outcome.truth.step_ms / simulate(stream.fixed, _SIMULATED_S / 4)[1]
            rules = (stream.rule,) if stream.rule else ()
            yield Labelled(stream.name, outcome.log, rules, stream.scenario.lines, gain)


def _h100() -> Iterator[Labelled]:
    for program in program_runs.names():
        logs = [path for path in LOGS if re.match(f"h100.*_{program}", path.name)]
        log = next((path for path in logs if _name(path) in CASES), logs[0] if logs else None)
        if log is not None:
            expected = program_runs.expected(program)
            rules = () if expected == "none" else tuple(expected.split(" or "))
            case = CASES.get(_name(log))
            yield Labelled(program, log, rules, gain=case.gain if case is not None else None)


_GROUPS: dict[str, Callable[[], Iterator[Labelled]]] = {"scripts": _scripts, "simulated": _simulated, "h100": _h100}


def accuracy(group: str) -> str:
    """A table of a group's programs, each with its label and its verdict, and the sums, as Markdown."""
    rows, right, placed = [], 0, []
    for one in _GROUPS[group]():
        folded = fold(one.log)
        first = next(iter(folded.findings), None)
        place_right = one.is_right_place(first)
        right += one.is_right(first)
        placed += [place_right] if place_right is not None else []
        settled_s = folded.settled_after(one.is_right)
        rows.append(
            [
                one.program,
                " or ".join(one.rules) or "healthy",
                _marked(_verdict(first), one.is_right(first)),
                _marked(_place(first), place_right) if place_right is not None else "–",
                _promised(first) if one.rules else "–",
                f"{one.gain:.3g}x faster" if one.gain is not None else "–",
                f"{settled_s:.0f} s" if settled_s is not None else "–",
            ]
        )
    shown = [column for column in range(len(_HEADS)) if any(row[column] != "–" for row in rows)]
    lines = [_HEADS, ["---"] * len(_HEADS), *rows]
    sums = f"Verdict right: {right} of {len(rows)}." + (
        f" Line right: {sum(placed)} of {len(placed)}." if placed else ""
    )
    return (
        "\n".join([f"**{sums}**", "", *(f"| {' | '.join(row[column] for column in shown)} |" for row in lines)]) + "\n"
    )


def _marked(text: str, is_right: bool) -> str:
    return text if is_right else f"**wrong:** {text}"


def _verdict(finding: Finding | None) -> str:
    return "none" if finding is None else f"{name_of(finding)} ({finding.severity})"


def _place(finding: Finding | None) -> str:
    place = next(iter(finding.where), None) if finding is not None else None
    return "none" if place is None else f"{place.file.rpartition('/')[2]}:{place.line}"


def _promised(finding: Finding | None) -> str:
    fix = next(iter(finding.fixes), None) if finding is not None else None
    return "–" if fix is None or fix.estimated_speedup is None else times_text(*fix[1:4])


def _name(log: Path) -> str:
    return log.name.partition(".")[0]
