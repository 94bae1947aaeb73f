"""CSV: one row per process and window, for spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TextIO

from tuimon.node_ids import own_id
from tuimon.records import BETWEEN, PHASES, Gpu, Header, Record, Steps
from tuimon.text import plain
from tuimon.views.export.process_names import ProcessNames

_PHASES = (*PHASES, BETWEEN)
COLUMNS = (
    "wall_unix_s",
    "t_s",
    "pid",
    "steps",
    "step_median_ms",
    "step_p95_ms",
    *(f"{name}_ms_per_step" for name in _PHASES),
    "gpu_util_ratio",
    "dropped_markers",
    "host",
    "rank",
)


#: A spreadsheet computes a cell that begins so, blanks before it or not (https://owasp.org/www-community/attacks/CSV_Injection).
_FORMULA = ("=", "+", "-", "@")


def write_csv(records: Iterable[Record], out: TextIO) -> int:
    """Write the table; returns how many rows. Figures that were not measured are empty, words are never a formula."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    anchor_s: float | None = None
    gpus: dict[str, Gpu] = {}
    names = ProcessNames()
    rows = 0
    for record in records:
        names.add_record(record)
        if isinstance(record, Header):
            anchor_s = record.wall_unix_s - record.t
        elif isinstance(record, Gpu):
            gpus[record.uuid] = record
        elif isinstance(record, Steps):
            writer.writerow([*_row(record, anchor_s, gpus), _text(names.host(record.pid)), names.rank(record.pid)])
            rows += 1
    return rows


def _row(record: Steps, anchor_s: float | None, gpus: dict[str, Gpu]) -> list[object]:
    phases = {phase.name: phase.total_ns for phase in record.phases}
    utils = [gpu.util_ratio for gpu in gpus.values() if gpu.util_ratio is not None and record.pid in gpu.pids]
    return [
        "" if anchor_s is None else f"{anchor_s + record.t:.3f}",
        f"{record.t:.3f}",
        own_id(record.pid),
        record.count,
        _ms(record.median_ns),
        _ms(record.p95_ns),
        *(_phase(phases, name, record.usual) for name in _PHASES),
        f"{sum(utils) / len(utils):.3f}" if utils else "",
        record.dropped,
    ]


def _phase(phases: dict[str, int], name: str, steps: int) -> str:
    """Beside undivided ``between`` time, a phase that is absent was not measured; otherwise it took no time."""
    if not steps or (name not in phases and BETWEEN in phases):
        return ""
    return _ms(phases.get(name, 0) / steps)


def _text(words: str) -> str:
    """Words from outside on one line, behind an apostrophe where a spreadsheet would take them for a formula."""
    words = plain(words)
    return f"'{words}" if words.lstrip().startswith(_FORMULA) else words


def _ms(ns: float | None) -> str:
    return "" if ns is None else f"{ns / 1e6:.4f}"
