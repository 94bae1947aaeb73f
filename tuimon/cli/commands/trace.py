"""``tuimon trace``: operators and kernels of the next steps of a training, or of a trace that was taken."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing

from tuimon.cli.options import number_between, parser_of
from tuimon.cli.writing import add_output, write_message
from tuimon.errors import TraceError, UsageError
from tuimon.launch.signals import LeaveSignals
from tuimon.new_files import free_name
from tuimon.session.session import Session
from tuimon.sources.control_channel import POLL_S
from tuimon.sources.log.source import read_records
from tuimon.sources.outputs import check_output
from tuimon.sources.tracing import HELD_MS, STEPS_LIMIT, TraceOrder
from tuimon.text import plain, whole_number
from tuimon.trace.events import TakenBy
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import Summary, summarize

_DOC = """\
Record the next steps of a training with torch.profiler, without a change to it: every operator, and on a GPU every
kernel, copy and wait. The trace is written to FILE, for https://ui.perfetto.dev; a summary goes to stdout.

TARGET is the pid of a training that tuimon run started (or that tuimon was injected into), the log of a run that is
still going on, whose figures then stand next to those traced, or a trace taken earlier, of any program.

The profiler makes the traced steps two to three times as long, and the training is held up for a moment while it stops
and writes; other steps cost nothing."""

#: Seconds of waiting after which a line says what is awaited.
_NOTICE_AFTER_S = 10.0
_NO_CHANGE_S = 600.0


def main(argv: Sequence[str]) -> int:
    parser = parser_of("trace", _DOC)
    parser.add_argument("target", metavar="TARGET", help="PID, LOG of a run that is still going on, or a trace")
    steps = number_between(1, STEPS_LIMIT, int)
    parser.add_argument("--steps", type=steps, default=5, metavar="N", help="whole steps to record (5)")
    add_output(parser, "where to write it (tuimon-trace-PID.json.gz, or -PID-2 where that exists)")
    parser.add_argument(
        "--max-pause",
        type=number_between(1, 60_000, int),
        default=HELD_MS,
        metavar="MS",
        help=f"hold the training up for at most this long in all; fewer steps are recorded if need be ({HELD_MS})",
    )
    parsed = parser.parse_args(argv)
    if whole_number(parsed.target) is None and parsed.target.endswith((".json", ".json.gz")):  # logs: .jsonl
        _show(summarize(read_trace(parsed.target)))
        return 0
    if parsed.output == "-":
        raise UsageError("a trace is written to a file: its summary goes to stdout", "Give -o the name of a file")
    target = _target(parsed.target)
    path = parsed.output or free_name(f"tuimon-trace-{target.pid}", ".json.gz") + ".json.gz"
    check_output(path, force=parsed.force)
    with LeaveSignals() as signals, closing(TraceOrder(target.pid, parsed.steps, parsed.max_pause)) as taking:
        _wait_for(taking, signals)
        summary = taking.write(path, target, force=parsed.force)
    write_message(f"tuimon: wrote {plain(path)}; see it at https://ui.perfetto.dev or with: tuimon trace {plain(path)}")
    _show(summary)
    return 0


def _target(target: str) -> TakenBy:
    """The process to trace, with its known facts; for a log, the run's first rank."""
    pid = whole_number(target)
    if pid is not None:
        return TakenBy(pid)
    session = Session()
    for record in read_records(target):
        session.add(record)
    if session.exit is not None:
        raise TraceError(f"the run of {plain(target)} has ended", "A trace can only be taken of a running training")
    pid = next(iter(session.trainers()), None)
    if pid is None:
        raise TraceError(f"no process of {plain(target)} has trained yet", "Wait for its first steps")
    from tuimon.views.tui.sheets.trace_sheet import known_before

    return known_before(session, pid)


def _wait_for(taking: TraceOrder, signals: LeaveSignals) -> None:
    is_reported = False
    while not taking.is_over:
        if signals.ended_by is not None:
            raise KeyboardInterrupt
        taking.poll()
        if not is_reported and taking.waited_s > _NOTICE_AFTER_S:
            is_reported = True
            waited_for = "a backward pass" if taking.taken is None else "the steps"
            write_message(f"tuimon: waiting for {waited_for} to end")
        if taking.waited_s > _NO_CHANGE_S:
            raise TraceError(
                "no trace within ten minutes", "The training may be in set-up, in a long evaluation, or stuck"
            )
        time.sleep(POLL_S)


def _show(summary: Summary) -> None:
    from tuimon.views.tui.drawing.lines import text_of
    from tuimon.views.tui.sheets.trace_sheet import trace_lines

    for line in trace_lines(summary, 120):
        print(text_of(line).rstrip())
    sys.stdout.flush()
