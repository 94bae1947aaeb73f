"""The GPU pane: the GPUs that the run uses in front, as cards or as a table; the others in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs
from msgspec.structs import replace
from rich.cells import cell_len

from tuimon.session.rows import GpuRow, TorchMemoryRow
from tuimon.views.format import plain
from tuimon.views.gpu_text import stale_after_s
from tuimon.views.tui.drawing.lines import Line, Span, clipped, line
from tuimon.views.tui.drawing.pane import Pane
from tuimon.views.tui.gpu.card import card_rows_wanted, gpu_card
from tuimon.views.tui.gpu.cards import cards_lines, cards_rows
from tuimon.views.tui.gpu.figures import GpuView, TorchShare
from tuimon.views.tui.gpu.gpu_table import folded_line, gpu_mosaic, gpu_table

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session

_LEAST_CARD = 3  # rows
_UNUSED_CARDS = 2


class GpuState(NamedTuple):
    """The devices, what the run's processes hold of them, and why there is none."""

    gpus: tuple[GpuRow, ...]
    note: str | None
    hint: str | None = None
    torch: tuple[TorchMemoryRow, ...] = ()
    labels: tuple[tuple[int, str], ...] = ()  # the run's processes, by pid
    whole_run: bool = False  # the means are over all of its steps


class GpuPane(Pane[GpuState]):
    """One card a GPU; a table where there are many; one line where there is none."""

    def collect(self, session: Session, findings: Sequence[Finding]) -> GpuState:
        """All devices, and the source's notice."""
        notice, run = session.notices.get("gpu"), session.shown()
        gpus = run.gpus()
        stale_s = stale_after_s(gpus, session.header.interval_s if session.header else 1.0)
        return GpuState(
            tuple(_for_display(gpu, stale_s) for gpu in gpus),
            plain(notice.message) if notice is not None else None,
            plain(notice.hint) if notice is not None and notice.hint else None,
            tuple(row for pid in session.trainers_here() for row in session.torch_memory(pid)),
            tuple((p.pid, f"rank {p.rank}") for p in session.processes() if p.rank is not None and not p.ended),
            session.exit is not None and bool(run.stepping_spans()),
        )

    def draw(self, state: GpuState, width: int, height: int) -> list[Line]:
        """The content's lines."""
        return gpus_lines(state, width, height)

    def heading(self, state: GpuState) -> tuple[Span, ...]:
        """The one GPU's name, or how many there are; and what the means are of."""
        spans = (Span("2 ", "key"), Span("GPU", "text bold"))
        front, folded = in_front(state.gpus)
        names = {plain(gpu.latest.name).removeprefix("NVIDIA ") for gpu in front if gpu.latest.parent_uuid is None}
        name = f" · {names.pop()}" if len(names) == 1 else ""
        span = " · while training" if state.whole_run else " · last 30 s"
        span = span if any(gpu.means is not None for gpu in front) else ""
        if len(front) == 1:
            return (*spans, Span(f" {front[0].latest.index}{name}{span}", "dim"))
        cut = {gpu.latest.parent_uuid for gpu in state.gpus}  # their instances count instead
        used = [gpu.used_by_run for gpu in (*front, *folded) if gpu.latest.uuid not in cut]
        return (*spans, Span(f" · {sum(used)} of {len(used)} used by this run{name}{span}", "dim"))


def in_front(gpus: Sequence[GpuRow]) -> tuple[list[GpuRow], list[GpuRow]]:
    """The GPUs that the run uses, or all where it is known of none, and the rest; MIG instances below their GPU."""
    used = {gpu.latest.uuid for gpu in gpus if gpu.used_by_run}
    parents = {gpu.latest.parent_uuid for gpu in gpus if gpu.latest.uuid in used}
    kept = [gpu for gpu in gpus if not used or gpu.latest.uuid in used or gpu.latest.uuid in parents]
    front = []
    for gpu in sorted((gpu for gpu in kept if not _is_child(gpu, kept)), key=lambda gpu: gpu.latest.index):
        front += [gpu, *(child for child in kept if child.latest.parent_uuid == gpu.latest.uuid)]
    shown = {gpu.latest.uuid for gpu in front}
    return front, [gpu for gpu in gpus if gpu.latest.uuid not in shown]


def _is_child(gpu: GpuRow, gpus: Iterable[GpuRow]) -> bool:
    return gpu.latest.parent_uuid is not None and any(other.latest.uuid == gpu.latest.parent_uuid for other in gpus)


def gpu_rows_wanted(state: GpuState, width: int, most: int) -> int:
    """Rows of content for these GPUs in this inner width: cards, or a table where they take more than ``most``."""
    front, folded = in_front(state.gpus)
    views = _views(state, front)
    rest = bool(folded) + bool(state.note)
    if len(views) == 1:
        return card_rows_wanted(views[0]) + rest
    rows = cards_rows(views, width)
    return (rows if rows <= most and _worth_cards(views) else len(views) + 1) + rest


def gpus_lines(state: GpuState, width: int, height: int) -> list[Line]:
    """Cards, or a table where cards do not fit, or one line with what is missing."""
    if not state.gpus:
        return [line(("GPU ", "text bold"), (_note(state, width - 4), "dim"))]
    front, folded = in_front(state.gpus)
    below = [folded_line(folded, width)] if folded else []
    below += [line((_note(state, width), "warning"))] if state.note else []
    below = below[: max(height - 1, 0)]
    room = height - len(below)
    views = _views(state, front)
    if len(views) == 1 and room >= _LEAST_CARD:
        return [*gpu_card(views[0], width, room), *below]
    cards = cards_lines(views, width, room) if len(views) > 1 and _worth_cards(views) else None
    if cards is None:
        cards = gpu_table(views, width, room) if len(views) <= room else gpu_mosaic(views, width, room)
    return [*cards, *below]


def _note(state: GpuState, width: int) -> str:
    """The source's notice, with what to do where that fits."""
    note = state.note or "none seen so far"
    whole = f"{note} – {state.hint}"
    return whole if state.hint and cell_len(whole) <= width else clipped(note, width)


def _worth_cards(views: Sequence[GpuView]) -> bool:
    """True if the GPUs get cards: a machine full of GPUs that the run does not use is a table."""
    return len(views) <= _UNUSED_CARDS or any(view.gpu.used_by_run for view in views)


def _views(state: GpuState, gpus: Sequence[GpuRow]) -> list[GpuView]:
    labels = dict(state.labels)
    return [GpuView(gpu, _torch_on(gpu, state), labels, state.whole_run) for gpu in gpus]


def _torch_on(gpu: GpuRow, state: GpuState) -> TorchShare | None:
    """torch's share of a GPU's memory, summed over the run's processes.

    A process whose device is not known counts only where the run uses a single GPU.
    """
    used = [other for other in state.gpus if other.used_by_run]
    alone = len(used) == 1 and used[0].latest.uuid == gpu.latest.uuid
    rows = [row for row in state.torch if row.uuid == gpu.latest.uuid or (row.uuid is None and alone)]
    reserved = [row.reserved_bytes for row in rows if row.reserved_bytes is not None]
    allocated = [row.allocated_bytes for row in rows if row.allocated_bytes is not None]
    if not rows or len(reserved) < len(rows):
        return None
    retries = sum(row.retries or 0 for row in rows)
    return TorchShare(sum(allocated) if len(allocated) == len(rows) else None, sum(reserved), retries)


def _for_display(gpu: GpuRow, stale_s: float) -> GpuRow:
    """A row without changes that are not shown, ages in whole seconds: equal rows are not painted again."""
    return replace(
        gpu,
        stale_s=float(int(gpu.stale_s)) if gpu.stale_s >= stale_s else 0.0,
        latest=structs.replace(gpu.latest, t=0.0, util_samples=[], energy_j=None, xids=[], cost_ms=None),
        memory_history=(),
        power_history=(),
    )
