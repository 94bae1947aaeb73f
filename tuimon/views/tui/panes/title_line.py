"""The first line: what runs, since when, and how fast."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tuimon.node_ids import own_id
from tuimon.records import Exit
from tuimon.session.gpus import GpuRow
from tuimon.session.progress import Progress, run_progress
from tuimon.session.ranks import Which, which_training
from tuimon.session.state import stands_still
from tuimon.session.steps import StepSummary
from tuimon.views.format import ABSENT, count, duration, ms, number, percent, plain, rate
from tuimon.views.gpu_text import gpu_text
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.lines import Line, Span, cells, justified, line
from tuimon.views.words import (
    flops_rate_text,
    left_text,
    loss_text,
    nodes_text,
    position_text,
    rate_texts,
    started_program,
)

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session


#: (level, text, role): if room is short, the items of the highest level are dropped first.
_Item = tuple[int, str, str]


class TitleFacts(NamedTuple):
    """The facts in the title line."""

    name: str
    pid: int | None
    training: Which
    elapsed_s: float | None
    steps: StepSummary | None
    mean_ms: float | None  # of a step, as its phases add up
    exit: Exit | None
    paused: bool = False
    gpu: str | None = None  # "GPU 97 % · tensor 12 %"
    gpu_model: str | None = None  # "H100", "8x H100"
    progress: Progress | None = None
    followed: bool = False  # a log that is still being written
    read_ratio: float | None = None  # 0..1, how much of a log has been read; None once all has
    nodes: str | None = None  # the nodes that are not well
    no_hooks: str | None = None  # why the figures are estimates
    still: bool = False  # its loop stands still: the pace of the last seconds means nothing


class TitleLine(Pane[TitleFacts], can_focus=False):
    """One line at the top."""

    paused = False
    followed = False
    read_ratio: float | None = None

    def collect(self, session: Session, findings: Sequence[Finding]) -> TitleFacts:
        """Facts about the run; pace and GPUs of the last 30 s, or of the whole run once it has ended."""
        pid, run = session.trainer(), session.shown()
        gpus, table = run.gpus(), run.phases(pid) if pid is not None else None
        own = next((process.command for process in session.processes() if process.pid == pid), ())
        return TitleFacts(
            name=started_program(session.header.command if session.header else own) or ABSENT,
            pid=pid,
            training=which_training(session),
            elapsed_s=elapsed_s(session, pid),
            steps=run.steps(pid) if pid is not None else None,
            mean_ms=table.mean_ms if table is not None else None,
            exit=session.exit,
            followed=self.followed,
            read_ratio=self.read_ratio,
            nodes=nodes_text(session.nodes.known.values()) if session.exit is None else None,
            still=stands_still(session),
            no_hooks=_no_hooks(session, pid),
            gpu=gpu_text(gpus, session.header.interval_s if session.header else 1.0),
            gpu_model=_gpu_model(gpus),
            progress=run_progress(session, pid) if pid is not None else None,
        )

    def draw(self, state: TitleFacts, width: int, height: int) -> list[Line]:
        """The line, which shows at once whether the screen is frozen."""
        return [title_line(state._replace(paused=self.paused), width)]


def title_line(facts: TitleFacts, width: int) -> Line:
    """The facts that fit; the least important are left out first."""
    right: list[Span] = []
    if facts.read_ratio is not None:
        right += line((f" READING {percent(min(facts.read_ratio, 0.99))} ", "warning badge"), " ")
    elif facts.followed:
        right += line((" LIVE ", "benign badge"), " ")
    if facts.paused:
        right += line((" PAUSED ", "warning badge"), " ")
    items = _items(facts)
    for drop in range(9, -1, -1):
        left = (*line(" "), *_joined([item for item in items if item[0] <= drop]))
        if cells(left) + cells(right) + 2 <= width:
            break
    return justified(left, right or line(" "), width)


def _items(facts: TitleFacts) -> list[_Item]:
    items: list[_Item] = [(0, facts.name, "strong")]
    if facts.gpu_model is not None:
        items.append((7, facts.gpu_model, "text"))
    if facts.pid is not None:
        items.append((9, f"pid {own_id(facts.pid)}", "dim"))
    if facts.training.text:
        items.append((3, facts.training.text, "text"))
    if facts.nodes is not None:
        items.append((1, facts.nodes, "warning"))
    if facts.exit is not None:
        items += _end(facts.exit, facts.elapsed_s)
    elif facts.elapsed_s is not None:
        items.append((3, duration(facts.elapsed_s), "text"))
    items += _pace(facts)
    if facts.progress is not None:
        place = 7 if facts.exit is not None else 2
        known: list[_Item] = [(6, text, "text") for text in rate_texts(facts.progress)]
        known += [
            (place, position_text(facts.progress), "text"),
            (4, left_text(facts.progress), "text"),
            (5, loss_text(facts.progress), "text"),
            (6, flops_rate_text(facts.progress), "text"),
        ]
        items += [item for item in known if item[1]]
    if facts.no_hooks is not None:
        items += [(1, "no hooks", "warning"), (6, f", {plain(facts.no_hooks)}; figures are estimates", "warning")]
    if facts.gpu is not None:
        busy, _, tensor = facts.gpu.partition(" · ")
        items += [(8, busy, "text"), *([(8, tensor, "text")] if tensor else [])]
    return items


def _end(end: Exit, elapsed_s: float | None) -> list[_Item]:
    """``ENDED ok``, ``after 15s``; in red how it failed."""
    if end.signal:
        how, role = f"ENDED by {end.signal}", "critical"
    elif end.exit_code:
        how, role = f"ENDED, exit code {end.exit_code}", "critical"
    elif end.has_failed:
        how, role = "ENDED by an error", "critical"
    else:
        how, role = "ENDED ok" if end.exit_code == 0 else "ENDED", "benign"
    badge: list[_Item] = [(0, f" {how} ", f"{role} badge")]
    return [*badge, *([(3, f" after {duration(elapsed_s)}", "text")] if elapsed_s is not None else [])]


def _pace(facts: TitleFacts) -> list[_Item]:
    """How many steps, how long each takes, and how many a second."""
    steps = facts.steps
    if steps is None:
        return []
    if steps.estimated:
        return [(4, f"~{rate(steps.per_second)}", "text")]
    if steps.median_ms is None:
        return [(4, "no step yet" if not steps.total else "no step lately", "text")]
    return [
        (7, f"{count(steps.total)} steps", "text"),
        (1, f"mean {ms(facts.mean_ms)}", "strong"),
        (9, f", median {number(steps.median_ms)}, p95 {number(steps.p95_ms)}", "dim"),
        (4, "no step lately" if facts.still else rate(steps.per_second), "text"),
    ]


def _no_hooks(session: Session, pid: int | None) -> str | None:
    """Why a process of a run that tuimon has launched has no hooks; None where it has, or may yet have them."""
    process = session.process(pid) if pid is not None else None
    if process is None or process.markers or session.header is None or session.header.mode != "run":
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


def _joined(items: list[_Item]) -> list[Span]:
    spans: list[Span] = []
    for _, text, role in items:
        if spans and text[0] not in ", ":
            spans.append(Span(" · ", "faint"))
        elif role.endswith(" badge"):
            spans.append(Span("  "))
        spans.append(Span(text, role))
    return spans


def elapsed_s(session: Session, pid: int | None) -> float | None:
    """Seconds since the process of the run started, if that is known; else since tuimon began to watch it."""
    if session.header is None:
        return None
    watched = session.now_s - session.header.t
    for process in session.processes():
        if process.pid == pid:
            return max(session.header.wall_unix_s + watched - process.start_unix_s, 0.0)
    return watched
