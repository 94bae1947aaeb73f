"""How often the verdicts are right: sums and tables of the accuracy pages, for docs.make_figures."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median

from bench.gpu import program_runs
from docs.cases import CASES
from tests.recorded_logs import LOGS
from tests.scenarios.streams import STREAMS, judged
from tests.truth import causes
from tests.truth.judging import BUSY_CORES, Judgement, judge
from tests.truth.kind import of
from tests.truth.programs import Leaks, Program, Scenarios, labelled
from tests.truth.running import Outcome, Truth

#: Length of a simulated training: enough for verdicts to settle.
_SIMULATED_S = 15.0
_HEADS = (
    *("program", "expected", "first verdict", "place", "phases", "settled after", "predicted", "measured"),
    *("after attach", "its place", "its phases", "it settled after"),
)


def _scripts() -> Iterator[Judgement]:
    """As ``make accuracy`` recorded them; a program that it has not run yet is judged by its recorded log, if any."""
    recorded = Scenarios().results()
    simulated = {re.sub(r"\W+", "_", stream.name) for stream in STREAMS}  # some of their logs are there as well
    logs = {_name(path): path for path in LOGS if _name(path) not in simulated}
    for name, program in labelled(experiment="scenarios").items():
        if name in recorded:
            yield recorded[name]
        elif name in logs:
            yield _of_log(program, logs[name])


def _simulated() -> Iterator[Judgement]:
    with tempfile.TemporaryDirectory() as folder:
        for stream in STREAMS:
            yield judged(stream, Path(folder), _SIMULATED_S)


def _h100() -> Iterator[Judgement]:
    for name in program_runs.names():
        logs = [path for path in LOGS if re.match(f"h100.*_{name}", path.name)]
        log = next((path for path in logs if _name(path) in CASES), logs[0] if logs else None)
        if log is not None:
            expected = program_runs.expected(name)
            rules = () if expected == "none" else tuple(expected.split(" or "))
            case = CASES.get(_name(log))
            gain = case.gain if case is not None and (not rules or case.rule in rules) else None
            yield _of_log(Program(name, Path(f"{name}.py"), rules, measured=gain), log)


def _of_log(program: Program, log: Path) -> Judgement:
    """Judged without the program's own measurement."""
    return judge(program, Outcome(Truth(0, 0.0, {}), log))


_GROUPS: dict[str, Callable[[], Iterator[Judgement]]] = {"scripts": _scripts, "simulated": _simulated, "h100": _h100}


@cache
def _rows(group: str) -> Sequence[Judgement]:
    """A group's programs, judged once for all pages."""
    return tuple(_GROUPS[group]())


def accuracy(group: str, part: str = "") -> str:
    """A table of a group's programs, each with its label and its verdict, the sums, and what is wrong, as Markdown.

    The first line has the sums, and is all there is if ``part`` is ``sums``.
    """
    if part == "sums":
        return accuracy(group).partition("\n")[0] + "\n"
    if group == "gains":
        return _gains()
    if group == "causes":
        return _causes()
    if group == "leaks":
        return _leaks()
    rows = _rows(group)
    cells = [[cell or "–" for cell in _cells(row)] for row in rows]
    shown = [n for n in range(len(_HEADS)) if any(row[n] != "–" for row in cells)]
    table = [_HEADS, ["---"] * len(_HEADS), *cells]
    lines = [f"**{_sums(rows)}**", "", *(f"| {' | '.join(row[n] for n in shown)} |" for row in table)]
    return "\n".join([*lines, *_remarks(group, rows)]) + "\n"


def _gains() -> str:
    """How often the measured gain lay within the predicted range, and on which side the others lie, in a sentence."""
    cpu, gpu = ([gain for row in _rows(group) if (gain := row.promised_against_measured)] for group in _MEASURED)
    held, low, high = ([gains.count(side) for gains in (cpu, gpu)] for side in ("within", "too low", "too high"))
    return (
        f"The measured gain lay within the predicted range for {held[0]} of {len(cpu)} fixes on a CPU (`make accuracy`)"
        f" and for {held[1]} of {len(gpu)} on\nan H100 (`make gpu-check`). Of the others, {sum(low)} gained more, and"
        f" {sum(high) or 'none'} less.\n"
    )


#: The groups whose fixes were run, on a CPU and on a GPU.
_MEASURED = ("scripts", "h100")


def _causes() -> str:
    """As ``make truth KIND=causes ARGS=--record`` recorded them, in the order of the study."""
    found = causes.Causes().results().values()
    lines = [
        f"**Named: {of(bool(row.told) for row in found)}. Line right: {of(row.place_right for row in found)}."
        f" Silent without it: {of(None if row.false is None else not row.false for row in found)}.**\n",
        "| cause | of the issues | named | as | line right | silent without it | evidence |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cause, (percent, _) in causes.CAUSES.items():
        rows = [row for row in found if row.category == cause]
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(row.told for row in rows if row.told)) or "–"
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(row.evidence for row in rows).items()) or "–"
        told, silent = (
            of(bool(row.told) for row in rows),
            of(None if row.false is None else not row.false for row in rows),
        )
        places = [row.place_right for row in rows if row.place_right is not None]
        line = of(places) if places else "–"
        lines.append(f"| {cause} | {percent:g} % | {told} | {names} | {line} | {silent} | {kinds} |")
    missed = [f"- `{row.name}` is not named" for row in found if not row.told]
    missed += [f"- `{row.name}` names another line: {row.place or 'none'}" for row in found if row.place_right is False]
    missed += [f"- `{row.name}` without its cause: {', '.join(row.false)}" for row in found if row.false]
    return "\n".join([*lines, *(["\nWrong:\n", *missed] if missed else [])]) + "\n"


def _leaks() -> str:
    """As ``make truth KIND=leaks ARGS=--record`` recorded them."""
    kind = Leaks()
    rows = kind.results()
    table = [[column.head for column in kind.columns], ["---"] * len(kind.columns)]
    table += [[str(column.text(row) or "–") for column in kind.columns] for row in rows.values()]
    missing = [f"`{name}`" for name in kind.programs() if name not in rows]
    lines = [f"{'; '.join(' '.join(each.split()) for each in kind.totals(list(rows.values())))}.", ""] if rows else []
    lines += [f"| {' | '.join(cells)} |" for cells in table] if rows else []
    lines += ["", f"Not run yet: {', '.join(missing)}."] if missing else []
    return "\n".join(lines).strip() + "\n"


def _cells(row: Judgement) -> list[str | None]:
    """One per heading; None: unknown."""
    predicted = row.promised if not row.is_healthy else None
    is_comparable = row.measured is not None and row.others_cores < BUSY_CORES
    measured = f"{row.measured:.3g}x faster" if is_comparable else None
    attached = _seen(row.attached) if row.attached is not None else [None] * 4
    return [row.name, row.expected, *_seen(row), predicted, measured, *attached]


def _seen(row: Judgement) -> list[str | None]:
    """One run: verdict, place, phases, and how soon it was right."""
    name, severity, _ = row.verdict
    return [
        _marked(f"{name} ({severity})" if severity else "none", row.right),
        None if row.place_right is None else _marked(row.place or "none", row.place_right),
        f"{100 * row.share_error:.1f} points" if row.share_error is not None else None,
        f"{row.verdict_s:.0f} s" if row.verdict_s is not None else None,
    ]


def _sums(rows: Sequence[Judgement]) -> str:
    sums = [f"Verdict right: {of(row.right for row in rows)}."]
    if any(row.place_right is not None for row in rows):
        sums.append(f"Line right: {of(row.place_right for row in rows)}.")
    if errors := [100 * row.share_error for row in rows if row.share_error is not None]:
        sums.append(f"Largest error of a phase: median {median(errors):.1f} points of {len(errors)} programs.")
    if gains := [gain for row in rows if (gain := row.promised_against_measured)]:
        more, less = gains.count("too low"), gains.count("too high")
        sums.append(f"Gain within the estimate: {of(gain == 'within' for gain in gains)}, more: {more}, less: {less}.")
    if attached := [row.attached for row in rows if row.attached is not None]:
        sums.append(f"After attach: verdict right {of(row.right for row in attached)}.")
    return " ".join(sums)


def _remarks(group: str, rows: Sequence[Judgement]) -> Iterator[str]:
    """Programs that are wrong, and why as far as that is known; those that have not run yet."""
    if high := [f"`{row.name}`" for row in rows if row.promised_against_measured == "too high"]:
        yield f"\nGain estimated too high: {', '.join(high)}."
    if group != "scripts":
        return
    programs, found = labelled(experiment="scenarios"), {row.name for row in rows}
    wrong = [row for row in rows if not row.right or (row.attached is not None and not row.attached.right)]
    if wrong:
        yield "\nWrong:\n"
        yield from (f"- `{row.name}`{f': {why}' if (why := programs[row.name].missed) else ''}" for row in wrong)
    if busy := [row.name for row in rows if row.others_cores >= BUSY_CORES]:
        yield f"\nOther programs used {BUSY_CORES:g} cores and more beside {', '.join(f'`{name}`' for name in busy)}."
    if missing := [name for name in programs if name not in found]:
        yield f"\nNot run yet: {', '.join(f'`{name}`' for name in missing)}."


def _marked(text: str, is_right: bool) -> str:
    return text if is_right else f"**wrong:** {text}"


def _name(log: Path) -> str:
    return log.name.partition(".")[0]
