"""Headless: one line an interval on stderr, a summary at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from tuimon.diagnosis.rulebook import is_minor
from tuimon.views.finding_text import headline_text, is_probable, markdown_lines, only_minor, rule_title
from tuimon.views.format import MAX_WIDTH, advice, clock, ms, percent, plain, rate, shorten, timed_steps, wrap
from tuimon.views.report.report import Parts, marked, parts_of
from tuimon.views.run_text import (
    ended_text,
    gpu_text,
    idle_share_text,
    list_lines,
    memory_lines,
    nodes_text,
    progress_parts,
    sampling_text,
    steps_text,
    survivors_text,
)

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session
    from tuimon.views.report_types import Phase

_SHORT = {"forward": "fwd", "backward": "bwd", "optimizer": "opt"}
_WIDTH = MAX_WIDTH - len("[tuimon] ")
#: (level, text): from a line that would be too long, the parts of the highest level are dropped first.
_Part = tuple[int, str]
_COLOURS = {"critical": "31", "warning": "33", "info": "36", "benign": "32"}


class HeadlessView:
    """Lines for people on a stream that may close at any time."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._colour = stream is not None and stream.isatty() and "NO_COLOR" not in os.environ
        self._starting_s: float | None = None  # time of the last line about a training that starts
        self._latest: dict[object, object] = {}  # the last text on each subject

    def show(self, session: Session, findings: Sequence[Finding], measuring_s: int | None = None) -> None:
        """Write a line on the progress of the run; before it, new notices of the sources.

        ``measuring_s``: for how long steps have been measured while no verdict has held; None once one has.
        """
        now = parts_of(session.shown())
        for about, what, texts in _news(now, findings):
            if self._is_new(about, what):
                for text in texts:
                    self.write_message(text)
        since_s = session.now_s - session.start_s
        if now.state.name in ("starting", "unseen", "waiting"):
            if self._starting_s is not None and since_s < self._starting_s + 10.0:  # nothing changes but the time
                return
            self._starting_s = since_s
        first = findings[0] if findings and (measuring_s is None or is_probable(measuring_s)) else None
        if first is not None and is_minor(first):
            first = None
        self._write_progress(f"[tuimon {clock(since_s)}] ", now, first, has_held=measuring_s is None)

    def _write_progress(self, tag: str, now: Parts, first: Finding | None, *, has_held: bool) -> None:
        """Write the progress of the run and the name of the verdict; if the verdict is new, its headline below."""
        name = rule_title(first.rule) if first is not None else ""
        name = f"probably {name}" if name and not has_held else name
        room = MAX_WIDTH - len(tag) - (len(name) + 2 if name else 0)
        line = tag + progress(now, room)
        if first is not None:
            line += f"  \x1b[{_COLOURS[first.severity]}m{name}\x1b[0m" if self._colour else f"  {name}"
        self._write(line)
        if first is not None and has_held and self._is_new("verdict", first.rule):
            self._write_wrapped(f"{name}: {headline_text(first)}")

    def _is_new(self, about: object, what: object) -> bool:
        """True if this text differs from the last one about the same thing; remembers it."""
        is_new = self._latest.get(about) != what
        self._latest[about] = what
        return is_new

    def summary(self, session: Session, findings: Sequence[Finding], log_path: str | None) -> None:
        """Write the summary: how the run ended, steps over the whole run, the primary finding, where the log is."""
        for line in summary_lines(session, findings):
            self._write_wrapped(line)
        sampling = session.over("whole").sampling()
        if sampling is not None:
            text = f"stack samples: {sampling_text(sampling)}"
            self.write_message(f"\x1b[2m{text}\x1b[0m" if self._colour else text)
        if log_path:
            gone = os.path.exists(log_path) and not os.path.isfile(log_path)  # written to a pipe or a device
            path = plain(log_path)
            read_it = "" if gone else f"(tuimon report {path})"
            whole = f"log: {path} {read_it}".rstrip()
            for text in (whole,) if gone or len(whole) <= _WIDTH else (f"log: {path}", f"  {read_it}"):
                self.write_message(text)

    def write_message(self, text: str) -> None:
        """Write one of tuimon's own lines."""
        self._write(f"[tuimon] {text}")

    def _write_wrapped(self, text: str) -> None:
        """Write a message on as many lines as its words need."""
        for part in wrap(text, _WIDTH):
            self.write_message(part)

    def _write(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(f"{_fresh_line(self._stream)}{line}\n")
            self._stream.flush()
        except UnicodeEncodeError:
            self._write(line.encode("ascii", "replace").decode())
        except (OSError, ValueError):  # the terminal is gone, the pipe is closed: the run goes on unseen
            self._stream = None


def _news(now: Parts, findings: Sequence[Finding]) -> Iterator[tuple[object, object, Iterable[str]]]:
    """A text to write once: its subject, the part of it that may change, and its lines."""
    for notice in now.notices:
        yield ("notice", notice.source), notice.message, [advice(notice.message, notice.hint, notice.source)]
    if nodes := nodes_text(now.nodes):
        yield "nodes", nodes, [nodes]
    for pid, history in now.session.memory_history.items():
        yield ("memory", pid), history.t, (f"memory: {text}" for text in memory_lines(history))
    for unseen in now.unseen:
        yield ("unseen", unseen.pid), True, [unseen.text]
    past = next(reversed(now.session.standstills.past), None) if any(each.rule == "hang" for each in findings) else None
    if past is not None and past.ended_s is None:
        yield "hang", past.taken.t, (f"hang: {text}" for text in list_lines(past))


def _fresh_line(stream: TextIO) -> str:
    """Characters that take a terminal's cursor to an empty line, even from behind a progress bar of the training.

    One blank less than the terminal has columns: they stay on the line if the cursor is in its first column, and
    reach the next line otherwise. Empty if the stream is not a terminal.
    """
    try:
        return " " * (os.get_terminal_size(stream.fileno()).columns - 1) + "\r" if stream.isatty() else ""
    except (OSError, ValueError):  # closed, or without a file descriptor
        return ""


def progress(now: Parts, columns: int | None = None) -> str:
    """The run at this moment, in at most ``columns``: speed, step time, phases, position in the run, GPUs.

    Before the first step, the reason for its wait.
    """
    if not now.own.pid:
        return "waiting for a Python process that trains"
    parts = [] if now.stands_still else _steps_parts(now)
    if now.state.name != "training":
        parts.append((0, now.state.text))
    elif (steps := now.own.steps) is not None and not steps.per_second:
        parts.append((0, "no step lately"))
    parts += progress_parts(now.progress)
    parts.append((5, gpu_text(now.view.gpus())))
    lead = now.gpu_time.lead("backward begin") if now.gpu_time is not None else None
    if lead is not None and lead.median_us is not None:
        parts.append((8, f"launches {ms(lead.median_us / 1000)} ahead"))
    if now.gpu_time is not None and now.gpu_time.idle.low:
        parts.append((8, f"GPU idle {idle_share_text(now.gpu_time).replace(' ', '')}"))
    parts = [part for part in parts if part[1]]
    for least in range(max((number for number, _ in parts), default=0), 0, -1):
        text = "  ".join(text for number, text in parts if number <= least)
        if columns is None or len(text) <= columns:
            return text
    return shorten("  ".join(text for number, text in parts if not number), columns or MAX_WIDTH)


def _steps_parts(now: Parts) -> list[_Part]:
    """Pace and phases of the latest steps; meaningless while the loop stands still."""
    steps, parts = now.own.steps, list[_Part]()
    if steps is not None and steps.estimated:
        parts.append((0, f"~{rate(steps.per_second)}"))
    elif steps is not None and steps.per_second:
        parts += [(0, rate(steps.per_second)), (6, f"median {ms(steps.median_ms)}"), (7, f"p95 {ms(steps.p95_ms)}")]
    if now.phases:
        parts.append((1, phases_text(now.phases)))
        if steps is not None and (timed := timed_steps(steps.timed_ratio)):
            parts.append((9, f"({timed})"))
    return parts


def phases_text(phases: Sequence[Phase]) -> str:
    """``data 62% fwd 11% bwd 27% + eval 40%``; ``~`` marks estimates from samples, ``+`` a share of the loop."""
    cells = []
    for row in phases:
        if row.share or row.name != "eval":
            share = percent(row.share).replace(" ", "")
            beside = "+ eval" if row.name == "eval" else _SHORT.get(row.name, row.name)
            cells.append(f"{beside} {'~' if row.estimated else ''}{share}")
    return " ".join(cells) + (" (inferred from stacks)" if all(row.ms_per_step is None for row in phases) else "")


def summary_lines(session: Session, findings: Sequence[Finding]) -> list[str]:
    """The end of the run, its steps and phases, the primary finding with its fix."""
    end, now = session.exit, parts_of(session.over("whole"))
    steps = marked(now.own.steps)
    lines = ["; ".join(filter(None, (ended_text(end), survivors_text(end.survivors))))] if end is not None else []
    lines += [steps_text(steps)] if steps.total else []
    lines += [now.progress.text] if now.progress is not None else []
    lines += [phases_text(now.phases)] if now.phases else []
    lines += [f"goodput: {now.goodput.text}"] if steps.total and now.goodput is not None else []
    lines += [now.state.text] if now.state.name == "ended" else []  # a run that made no step
    return [*lines, *([f"tip: {now.tip}"] if now.tip is not None else []), *first_finding(findings)]


def first_finding(findings: Sequence[Finding]) -> list[str]:
    """The primary finding as Markdown; empty without a finding."""
    if not findings:
        return []
    first = findings[0]
    return [only_minor(first)] if is_minor(first) else markdown_lines(first)
