"""All findings in full: what each rests on and where, how the verdict changed, and what could not be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tuimon.diagnosis.explain.page import page_of
from tuimon.records import Place
from tuimon.views.evidence_text import evidence_rows
from tuimon.views.finding_text import beyond_share, rule_title, rules_by_reason, sentence, times_text, verdict_name
from tuimon.views.format import ABSENT, count, duration, place, plain
from tuimon.views.tui.drawing.lines import Line, Span, cells, column, hanging, justified, line, paragraph, wrapped
from tuimon.views.tui.drawing.palette import SEVERITY_WORDS
from tuimon.views.tui.sheets.code_around import Code, code_lines, no_code

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.diagnosis.hysteresis import Change
    from tuimon.diagnosis.judging import Unjudged

AROUND = 1  # lines of code before and after the one that is named
_LEAST_FIX = 24  # cells
_VALUE = 24  # cells of the column of figures at most
#: Meanings of figures, by their name on the screen.
_MEANINGS = {
    "CPU": "of the training process; 100 % is one core",
    "CPU waits for GPU": "in the synchronising call above",
    "GC per step": "pauses of the garbage collector",
    "GPU idle": "share of the step in which the GPU had nothing to do",
    "GPU idle at most": "share of the step in which the GPU had nothing to do",
    "GPU span per step": "a step on the GPU's clock, idle time included",
    "GPU util": "share of the time in which any kernel ran",
    "SM": "share of the multiprocessors that were busy",
    "SM clock": "of the GPU's multiprocessors",
    "SM clock max": "that the GPU allows",
    "TF32": "whether float32 products may round to it",
    "backward share": "of the step",
    "batch": "how long a worker takes to make one",
    "busy threads": "that want a core at a time",
    "cause": "as the driver names it",
    "compute capability": "of the GPU; TF32 from 8.0 on",
    "copy per step": "moving the batch to the GPU",
    "cores": "that the run may use",
    "cores taken": "by other programs",
    "cores used": "by the run",
    "cores waited for": "ready to run, without a free core",
    "cores wanted": "by the run's threads",
    "data per step": "how long a step waits for its batch",
    "eval per batch": "evaluating one batch",
    "fetch": "how long the training waits for a batch",
    "first": "mean step at the beginning",
    "first slowest": "the slowest of the first five steps",
    "forward share": "of the step",
    "gain at most": "without any idle time of the GPU",
    "grown": "how much longer that phase takes now",
    "grown phase": "the phase that takes longer now",
    "hottest function": "of those in question",
    "idle bounds wide because": "",
    "in collectives": "exchanging with other ranks",
    "launch lead": "how far launches run ahead of the GPU",
    "longer": "this rank's own work, a step",
    "longest": "pause",
    "longest step": "before it",
    "median": "of all steps",
    "now": "mean step at the end",
    "open for": "the step under way",
    "open phase": "the phase under way",
    "optimizer per step": "the optimizer's phase",
    "optimizer share": "of the step",
    "other per step": "work outside data, passes and optimizer",
    "parameter dtypes": "of the tensors that the optimizer updates",
    "pauses": "of at least 0.5 ms",
    "phase": "in which the rank is late",
    "ranks measured": "by GPU times or samples",
    "step": "mean time of a step",
    "steps": "until then",
    "stream idle": "how often the GPU had nothing queued",
    "tensor": "share of the time in which tensor cores worked",
    "trainings": "on the same GPU or cores",
    "unexplained waits": "asleep, for no reason that samples show",
    "waited": "by the other ranks, a step",
    "waits for a core": "ready to run, without a free core",
    "waits in backward": "the main thread, for other ranks",
    "worker CPU": "computing; the rest of the next figure is waiting",
    "workers": "of the DataLoader",
    "workers make batches": "in items and collate, waits included",
    "world size": "ranks of the training",
}
#: The effort of a fix, by the parameter of the step that it changes; else code.
_EFFORT = {"workers": "one setting", "persistent": "one setting"}
_CHANGES = 20


def findings_lines(
    findings: Sequence[Finding],
    width: int,
    code_of: Callable[[Place], Code] = no_code,
    chosen: str | None = None,
) -> list[Line]:
    """All findings whole: headline, places with their code, fixes with their gains, why, how sure, figures.

    The ``chosen`` rule is marked; of it, or of the first, the page says why and how sure.
    """
    if not findings:
        return [line(("No rule has found anything.", "dim"))]
    rows: list[Line] = []
    for finding in findings:
        explained = finding.rule == (chosen or findings[0].rule)
        rows += _head(finding, width, marked=finding.rule == chosen)
        for where in finding.where:
            rows += _where(where, code_of(where) if where is finding.where[0] else (), width)
        rows += _fixes(finding, width)
        more = beyond_share(finding.share_of_step, [fix._asdict() for fix in finding.fixes])
        rows += paragraph(more, width, "dim", indent=1) if more else []
        rows += _why(finding, width) if explained else []
        figures = evidence_rows(finding.evidence)
        rows += [(), line((" Figures", "dim"))] if figures else []
        rows += _figures(figures, width)
        rows += [(), ()]
    return rows[:-2]


def _head(finding: Finding, width: int, *, marked: bool) -> list[Line]:
    """Name, cause and severity in a row, the headline below."""
    cause = f"  {_words(finding.cause)}" if finding.cause else ""
    mark = line(("▸", "key bold")) if marked else ()
    left = (*mark, *line((f" {rule_title(finding.rule)} ", f"{finding.severity} badge"), (cause, "text")))
    right = line((f"{SEVERITY_WORDS[finding.severity]} ", finding.severity))
    fits = cells(left) + cells(right) < width
    return [
        justified(left, right if fits else (), width),
        *paragraph(plain(finding.headline), width, "strong", indent=1),
    ]


def _fixes(finding: Finding, width: int) -> list[Line]:
    """A row for each fix: what to do, what it gains, and what it asks for, as far as these are known."""
    if not finding.fixes:
        return []
    gains = [
        times_text(fix.estimated_speedup, fix.low, fix.high) if fix.estimated_speedup else ABSENT
        for fix in finding.fixes
    ]
    efforts = [_EFFORT.get(fix.change.what, "code") if fix.change is not None else ABSENT for fix in finding.fixes]
    gain = max(map(cell_len, [*gains, "gain"])) + 2
    effort = max(map(cell_len, [*efforts, "effort"])) + 2 if any(each != ABSENT for each in efforts) else 0
    room = width - 1 - gain - effort
    if room < _LEAST_FIX:
        effort, room = 0, room + effort
    if room < _LEAST_FIX:
        return _fixes_above_gains(finding, gains, width)
    names = f" {column('Fix', room)}{column('gain', gain, '>')}{column('effort', effort, '>')}"
    rows: list[Line] = [(), line((names, "dim"))]
    for number, (fix, gained, asked) in enumerate(zip(finding.fixes, gains, efforts, strict=True)):
        first, *more = wrapped(plain(fix.action), room) or [""]
        right = line((column(gained, gain, ">"), _gain_role(gained)), (column(asked, effort, ">"), "dim"))
        rows.append((*line(" ", (column(first, room), "strong" if number == 0 else "text")), *right))
        rows += [line("   ", (row, "text")) for row in wrapped(" ".join(more), room - 2)]
    return rows


def _fixes_above_gains(finding: Finding, gains: Sequence[str], width: int) -> list[Line]:
    """Each gain below its fix, when columns have no room."""
    rows: list[Line] = [(), line((" Fix", "dim"))]
    for fix, gained in zip(finding.fixes, gains, strict=True):
        rows += [*paragraph(plain(fix.action), width, "text", indent=1), line("   ", (gained, _gain_role(gained)))]
    return rows


def _gain_role(gained: str) -> str:
    return "dim" if gained == ABSENT else "benign bold"


def _why(finding: Finding, width: int) -> list[Line]:
    """The meaning of the verdict and how sure it is, from its page."""
    try:
        page = page_of(finding.rule)
    except KeyError:  # a rule of another version
        return []
    meaning = f"{page.meaning} {sentence(page.causes.get(finding.cause or '', ''))}".strip()
    rows: list[Line] = []
    for title, text in (("Why", meaning), ("How sure", page.sureness)):
        rows += [(), line((f" {title}", "dim")), *paragraph(plain(text).replace("`", ""), width, "text", indent=1)]
    return rows


def first_lines(rows: Sequence[Line]) -> list[int]:
    """The index of each finding's first line among ``findings_lines``."""
    return [index for index, row in enumerate(rows) if any(span.role.endswith(" badge") for span in row)]


def changes_lines(changes: Sequence[Change], start_s: float | None, width: int) -> list[Line]:
    """When the verdict changed and from what to what, the latest first; nothing where it never did."""
    if not changes:
        return []
    rows = [line(("What changed", "strong"), (", the latest first", "dim"))]
    for change in sorted(changes, key=lambda change: -change.t_s)[:_CHANGES]:
        since = duration(change.t_s - start_s) if start_s is not None else ""
        step = f"step {count(change.step)}" if change.step is not None else ""
        head = line(" ", (column(since, 8), "dim"), (column(step, 14), "dim"))
        words = f"{verdict_name(change.before)} → {verdict_name(change.after)}"
        rows += hanging(head, words, width)
    return rows


def unjudged_lines(missing: Sequence[Unjudged], width: int) -> list[Line]:
    """Which rules had nothing to judge by, by the reason why; nothing where all could judge."""
    if not missing:
        return []
    rows = [line(("Could not be judged", "strong"))]
    for reason, rules in rules_by_reason(missing).items():
        rows += paragraph(plain(reason), width, "text", indent=1)
        rows += paragraph(", ".join(_words(rule, "-") for rule in rules), width, "dim", indent=3)
    return rows


def _words(name: str, gap: str = " ") -> str:
    return plain(name).replace("_", gap)


def _where(where: Place, code: Code, width: int) -> list[Line]:
    """A place, with the lines around it where they can be read; else with the line that the samples brought."""
    spot = place(where.file, where.line, width=width - 1)
    function = "" if where.function.startswith("<") else f"{plain(where.function)}()"
    rows: list[Line] = [(), line(" ", (spot, "key bold"), "  ", (function, "text"))]
    near = [(n, text) for n, text in code if abs(n - where.line) <= AROUND]
    if not near and where.source:
        near = [(where.line, plain(where.source).strip())]
    return rows + code_lines(near, where.line)


def _figures(rows: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Figures with their units in columns, and the meaning of each where there is room for it."""
    names = max((cell_len(name) for name, _ in rows), default=0) + 2
    values = min(_VALUE, max((cell_len(value) for _, value in rows), default=0)) + 2
    lines = []
    for name, value in rows:
        head, meaning = line(" ", (column(name, names), "dim"), (value, "text")), _MEANINGS.get(name, "")
        gap = max(values - cell_len(value), 2)
        fits = bool(meaning) and cells(head) + gap + len(meaning) <= width
        lines.append((*head, Span(" " * gap + meaning, "dim")) if fits else head)
    return lines
