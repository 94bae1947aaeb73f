"""The first line: the run, its time, and its pace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.node_ids import own_id
from tuimon.records import Exit, Process
from tuimon.session.gpus import GpuRow
from tuimon.session.ranks import which_training
from tuimon.views.format import ABSENT, count, duration, ms, number, percent, plain, rate
from tuimon.views.report.report import Parts
from tuimon.views.run_text import gpu_text, nodes_text, progress_parts, started_program
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.lines import Line, Span, justified, line, line_width

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session


#: (level, text, role): if room is short, the items of the highest level are dropped first.
TitleItem = tuple[int, str, str]


class TitleState(NamedTuple):
    """The content of the title line."""

    items: tuple[TitleItem, ...]
    followed: bool = False  # a log that is still being written
    read_ratio: float | None = None  # 0..1, how much of a log has been read; None once all has


class TitleLine(Pane[TitleState], can_focus=False):
    """One line at the top."""

    paused = False
    followed = False
    read_ratio: float | None = None

    def collect(self, now: Parts, findings: Sequence[Finding]) -> TitleState:
        """The run, with pace and GPUs of the last 30 s, or of the whole run once it has ended."""
        return TitleState(tuple(title_items(now)), self.followed, self.read_ratio)

    def draw(self, state: TitleState, width: int, height: int) -> list[Line]:
        """The line; also shows whether the screen is frozen."""
        return [title_line(state, width, paused=self.paused)]


def title_line(state: TitleState, width: int, *, paused: bool = False) -> Line:
    """The items that fit, and badges at the right."""
    right: list[Span] = []
    if state.read_ratio is not None:
        right += line((f" READING {percent(min(state.read_ratio, 0.99))} ", "warning badge"), " ")
    elif state.followed:
        right += line((" LIVE ", "benign badge"), " ")
    if paused:
        right += line((" PAUSED ", "warning badge"), " ")
    for drop in range(9, -1, -1):
        left = (*line(" "), *_joined([item for item in state.items if item[0] <= drop]))
        if line_width(left) + line_width(right) + 2 <= width:
            break
    return justified(left, right or line(" "), width)


def title_items(now: Parts) -> list[TitleItem]:
    """The program and its position in the run; unknown parts are left out."""
    session, end = now.session, now.session.exit
    pid, gpus, header, process = now.own.pid, now.view.gpus(), session.header, session.process(now.own.pid)
    elapsed = None
    if header is not None:  # since the run started; after attach, since the process did, if that is known
        since_s = header.moment_s(process.start_unix_s) if process is not None else header.t
        elapsed = max(session.now_s - min(since_s, header.t), 0.0)
    items: list[TitleItem] = [
        (0, started_program((session.header or now.own.process).command) or ABSENT, "strong"),
        (7, _gpu_model(gpus) or "", "text"),
        (9, f"pid {own_id(pid)}" if pid else "", "dim"),
        (3, which_training(session), "text"),
    ]
    if end is not None:
        items += _end(end, elapsed)
    else:
        items += [(1, nodes_text(now.nodes), "warning")]
        items += [(3, duration(elapsed) if elapsed is not None else "", "text")]
    if pid:
        items += _pace(now)
        items += [(level, text, "text") for level, text in progress_parts(now.progress)]
    if reason := _no_hooks(session, now.own.process):
        items += [(1, "no hooks", "warning"), (6, f", {plain(reason)}; figures are estimates", "warning")]
    items += [(8, text, "text") for text in gpu_text(gpus).split(" · ")]
    return [item for item in items if item[1]]


def _end(end: Exit, elapsed_s: float | None) -> list[TitleItem]:
    """``ENDED ok``, ``after 15s``; in red how it failed."""
    if end.signal:
        how, role = f"ENDED by {end.signal}", "critical"
    elif end.exit_code:
        how, role = f"ENDED, exit code {end.exit_code}", "critical"
    elif end.has_failed:
        how, role = "ENDED by an error", "critical"
    else:
        how, role = "ENDED ok" if end.exit_code == 0 else "ENDED", "benign"
    badge: list[TitleItem] = [(0, f" {how} ", f"{role} badge")]
    return [*badge, *([(3, f" after {duration(elapsed_s)}", "text")] if elapsed_s is not None else [])]


def _pace(now: Parts) -> list[TitleItem]:
    """The number of steps, their length, and their rate."""
    steps = now.own.steps
    if steps is None:
        return []
    if steps.estimated:
        return [(4, f"~{rate(steps.per_second)}", "text")]
    if steps.median_ms is None:
        return [(4, "no step yet" if not steps.total else "no step lately", "text")]
    return [
        (7, f"{count(steps.total)} steps", "text"),
        (1, f"mean {ms(now.own.phases.mean_ms)}", "strong"),
        (9, f", median {number(steps.median_ms)}, p95 {number(steps.p95_ms)}", "dim"),
        (4, "no step lately" if now.stands_still else rate(steps.per_second), "text"),
    ]


def _no_hooks(session: Session, process: Process) -> str | None:
    """The reason why a process of a run that tuimon launched has no hooks; None if it has them, or may yet get them."""
    if process.markers or session.header is None or session.header.mode != "run":
        return None
    reason = process.markers_reason or ""
    return reason if reason.startswith("started with") else None


def _gpu_model(gpus: Sequence[GpuRow]) -> str | None:
    """``H100`` of ``NVIDIA H100 80GB HBM3``, ``8x H100``: of the GPUs that the run uses; None if these differ."""
    names = [plain(gpu.latest.name) for gpu in gpus if gpu.used_by_run and gpu.latest.parent_uuid is None]
    if len(set(names)) != 1:
        return None
    words = re.split(r" \d+ ?GB|-(?:SXM|PCIE)", re.sub(r"^(?:(?:NVIDIA|Tesla|GeForce) )+", "", names[0]))
    return f"{len(names)}x {words[0]}" if len(names) > 1 else words[0]


def _joined(items: list[TitleItem]) -> list[Span]:
    spans: list[Span] = []
    for _, text, role in items:
        if spans and text[0] not in ", ":
            spans.append(Span(" · ", "faint"))
        elif role.endswith(" badge"):
            spans.append(Span("  "))
        spans.append(Span(text, role))
    return spans
