"""The trainings of a run that has several, a line each: how fast each is, on what, and where; pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.node_ids import own_id
from tuimon.session.trainings import TrainingRow
from tuimon.views.format import ms, percent, size
from tuimon.views.tui.drawing.lines import Line, Span, column, line
from tuimon.views.tui.panes.title_line import run_name
from tuimon.views.tui.ranks.rank_lines import GAP, place_text, state_span

_NUMBER, _PID, _RANKS, _STEPS, _STEP, _GPU, _MEMORY, _STATE = 5, 9, 7, 10, 10, 6, 10, 15
_LEAST_COMMAND, _MOST_COMMAND, _LEAST_PLACE = 12, 32, 16


def training_lines(rows: Sequence[TrainingRow], width: int) -> tuple[Line, list[Line]]:
    """The names of the columns, and a line for each training; the columns that matter least go first."""
    room = width - _NUMBER - 2 - _LEAST_COMMAND - GAP - _LEAST_PLACE
    wanted = {
        "step": _STEP,
        "state": _STATE * any(state_span(row.first).text.strip() != "" for row in rows),
        "ranks": _RANKS * any(row.ranks > 1 for row in rows),
        "GPU": _GPU * any(row.first.gpu_ratio is not None for row in rows),
        "pid": _PID,
        "memory": _MEMORY,
        "steps": _STEPS,
    }
    shown = {}
    for name, cells in wanted.items():
        shown[name] = cells if cells <= room else 0
        room -= shown[name]
    command = _LEAST_COMMAND + min(max(0, room // 2), _MOST_COMMAND - _LEAST_COMMAND)
    rest = _LEAST_PLACE + room - (command - _LEAST_COMMAND)
    return _head(shown, command, rest), [_line(row, shown, command, rest) for row in rows]


def _head(shown: dict[str, int], command: int, rest: int) -> Line:
    names = [column("", _NUMBER + 2), column("training", command)]
    names += [column(name, shown[name], ">") for name in ("pid", "ranks", "steps", "step", "GPU", "memory")]
    state = column("  state", shown["state"])
    return (Span("".join((*names, state, column("  at", rest + GAP))), "dim"),)


def _line(row: TrainingRow, shown: dict[str, int], command: int, rest: int) -> Line:
    first = row.first
    number = column(f"{'▸' if row.in_focus else ''}{row.number}", _NUMBER, ">")
    figures = (
        ("pid", str(own_id(first.pid))),
        ("ranks", str(row.ranks)),
        ("steps", str(first.steps)),
        ("step", ms(first.step_ms)),
        ("GPU", percent(first.gpu_ratio)),
        ("memory", size(first.memory_bytes)),
    )
    text = "".join(column(value, shown[name], ">") for name, value in figures if shown[name])
    spans = [*line((number, "key bold" if row.in_focus else "text"), "  ", (column(_command(row), command), "text"))]
    spans.append(Span(text, "text"))
    if shown["state"]:
        spans += [Span(" " * GAP), state_span(first)]
    return (*spans, Span(" " * GAP), Span(column(place_text(first), rest), "dim"))


def _command(row: TrainingRow) -> str:
    return run_name(row.command)
