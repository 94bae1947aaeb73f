"""``tuimon demo``: replay a recorded run that ships with tuimon."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import NamedTuple

from tuimon.cli.options import parser_of, terminal_can_draw
from tuimon.cli.quick_start import collect_seldom
from tuimon.cli.writing import write_message
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.options import Options
from tuimon.records import Notice, Record, Steps
from tuimon.sources.base import NoticeSource
from tuimon.sources.log.runs import Chosen
from tuimon.sources.log.source import LogSource, PlayPace, read_records

_DOC = """\
Look at tuimon without a training: replay a recorded run in the full screen, its last seconds at the recorded pace, and
pause before the run's end. Without a terminal, print its report."""


class Demo(NamedTuple):
    """A recorded run that ships with tuimon."""

    log: str  # name of its file, without the ending
    about: str  # the training, and the machine that it was recorded on
    keys: str  # the keys worth pressing first
    played_s: float  # seconds before it holds, played at the recorded pace; the verdict holds by then


H100 = "NVIDIA H100"
DEMOS = {
    "starved": Demo("h100_seed_dummy_loader_pyspy", f"two slow DataLoader workers; {H100}", "v fixes  h lines", 2.0),
    "sync": Demo("h100_masked_loss_pyspy", f"a loss that indexes by a mask; {H100}", "v fixes  K trace", 8.0),
    "launch-bound": Demo("h100_cell_by_cell", f"a loop over nn.LSTMCell; {H100}", "v fixes  h lines", 3.0),
    "late-rank": Demo(
        "slow_reader", "DDP, a rank with a slow disk; four CPU processes, no GPU", "r ranks  v fixes", 12.0
    ),
    "float32": Demo(
        "h100_guard_in_every_layer", f"a busy GPU without its tensor cores; {H100}", "v fixes  h lines", 0.0
    ),
    "healthy": Demo("waits_every_step__GPU_bound", "loss.item() each step, at no cost; simulated GPU", "v more", 0.0),
}
DEFAULT = "starved"


def main(argv: Sequence[str]) -> int:
    parser = parser_of("demo", _DOC)
    parser.add_argument("name", nargs="?", choices=DEMOS, default=DEFAULT, help=f"which run (default: {DEFAULT})")
    parser.add_argument("--list", action="store_true", help="list the runs: name, verdict, and what was recorded")
    parsed = parser.parse_args(argv)
    if parsed.list:
        sys.stdout.write("\n".join(demo_table()) + "\n")
        return 0
    demo = DEMOS[parsed.name]
    with log_of(demo) as path:
        if not terminal_can_draw():
            from tuimon.cli.commands import report

            return report.main([path])
        from tuimon.cli.watching import watch

        collect_seldom()
        code = watch(open_demo(demo, path), Options())
        write_message("Your own training: tuimon run train.py. More recorded runs: tuimon demo --list")
        return code


@contextmanager
def log_of(demo: Demo) -> Iterator[str]:
    """The path of a demo's log file, valid within the ``with`` block."""
    with as_file(files("tuimon") / "recorded_runs" / f"{demo.log}.jsonl.gz") as path:
        yield str(path)


def open_demo(demo: Demo, path: str) -> Monitor:
    """A monitor that reads the run at once, but for some seconds that it plays; it holds while the run trains."""
    records = list(read_records(path))
    begin_s, most_s = records[0].t, trained_until_s(records) - records[0].t
    log = LogSource(Chosen(path), PlayPace(at_once_s=most_s - demo.played_s, most_s=most_s))
    hint = Notice(t=begin_s, pid=0, source="output", level="info", message=f"keys: {demo.keys}  ? help")
    return Monitor([log, NoticeSource([hint])], replay=True)


def trained_until_s(records: Sequence[Record]) -> float:
    """The moment before the last two windows with steps, in which a run may have come to its end."""
    return sorted({record.t for record in records if isinstance(record, Steps) and record.count})[-3]


def demo_table() -> list[str]:
    """The runs as lines of text, each with the verdict on it."""
    from tuimon.diagnosis.verdicts import fold
    from tuimon.views.finding_text import rule_title

    rows = [("NAME", "VERDICT", "RECORDED")]
    for name, demo in DEMOS.items():
        with log_of(demo) as path:
            _, findings = fold(read_records(path))
        rows.append((name, rule_title(findings[0].rule), demo.about))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{name:<{widths[0]}}  {verdict:<{widths[1]}}  {about}" for name, verdict, about in rows]
