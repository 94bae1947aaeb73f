"""``tuimon export``: a recorded session in another tool's format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TextIO

from tuimon.cli.options import add_run_choice, number_between, parser_of
from tuimon.cli.writing import Output, add_output, write_message
from tuimon.errors import TuimonError, UsageError
from tuimon.installation import version_of
from tuimon.records import PHASES, Frames, Header, Node, Notice, Process, Record
from tuimon.sources.log.runs import UNREADABLE, Chosen, choose
from tuimon.sources.log.source import LogSource
from tuimon.text import plain
from tuimon.views.export import Selection, collapsed, speedscope, write_perfetto
from tuimon.views.json_text import json_text

_DOC = """\
Turn a recorded session into a file for other tools:

  perfetto    counters and marks over time, for https://ui.perfetto.dev
  speedscope  stack samples by thread, for https://www.speedscope.app
  collapsed   stack samples, "function (file:line);...;leaf N", for flame graphs

In a folder the logs of all nodes of a run are one: in Perfetto each rank is a process, in speedscope a thread has its
rank and node; collapsed adds up all of them. Seconds count from the beginning of the log."""

#: Formats made of stack samples: only these have phases and roles.
_STACK_FORMATS = ("speedscope", "collapsed")


def main(argv: Sequence[str]) -> int:
    parser = parser_of("export", _DOC)
    parser.add_argument("log", metavar="LOG", help="what --log has written; in a folder, the latest run with all nodes")
    add_run_choice(parser)
    parser.add_argument("--to", choices=("perfetto", "speedscope", "collapsed"))
    add_output(parser)
    parser.add_argument("--phase", metavar="NAME", help="only samples of this phase or user range: data, ...")
    parser.add_argument("--role", metavar="ROLE", help='only samples of these threads: main, worker, "worker 0", ...')
    parser.add_argument(
        "--from",
        dest="from_s",
        type=number_between(0),
        default=0.0,
        metavar="SECONDS",
        help="leave out what is earlier",
    )
    parser.add_argument(
        "--until",
        dest="until_s",
        type=number_between(0),
        default=float("inf"),
        metavar="SECONDS",
        help="leave out what is later",
    )
    parsed = parser.parse_args(argv)
    if parsed.to is None:
        raise UsageError(
            "export needs a format: --to perfetto, speedscope or collapsed",
            "For example: tuimon export LOG --to perfetto -o run.json",
        )
    log = choose(parsed.log, parsed.run)
    selection = Selection(parsed.phase, parsed.role, parsed.from_s, parsed.until_s)
    if parsed.to not in _STACK_FORMATS and (selection.phase or selection.role):
        raise UsageError(
            f"{parsed.to} holds no stack samples: --phase and --role select nothing in it",
            f"Use them with --to {' or --to '.join(_STACK_FORMATS)}",
        )
    if selection.from_s > selection.until_s:
        raise UsageError(f"--from {selection.from_s:g} lies after --until {selection.until_s:g}")
    output = Output(parsed)
    write = _writer(parsed.to, log, selection)  # a log that cannot be read is reported before a file is made
    with output.opened() as out:
        write(out)
    return 0


def _writer(to: str, log: Chosen, selection: Selection) -> Callable[[TextIO], object]:
    """The function that writes the file; the log has been read if the format needs all of it."""
    records = _naming_unreadable(LogSource(log).read_all())
    if to == "perfetto":
        return lambda out: write_perfetto(_between(records, selection), out)
    if to == "collapsed":
        lines = list(collapsed(records, selection))
        if not lines:
            raise _nothing(log, selection)
        return lambda out: out.writelines(line + "\n" for line in lines)
    file = speedscope(records, selection, os.path.basename(log.name), f"tuimon {version_of('tuimon')}")
    if not file["profiles"]:
        raise _nothing(log, selection)
    return lambda out: out.write(json_text(file))


def _naming_unreadable(records: Iterable[Record]) -> Iterator[Record]:
    """The same records; names unreadable parts of the log on stderr, as few formats have a place for them."""
    for record in records:
        if isinstance(record, Notice) and record.source == UNREADABLE:
            write_message(f"tuimon: {plain(record.message)}")
        yield record


def _between(records: Iterable[Record], selection: Selection) -> Iterator[Record]:
    """The records of the selected time, and those of any time that others refer to (nodes, processes, frames ...)."""
    start_s: float | None = None
    for record in records:
        start_s = record.t if start_s is None else start_s
        if isinstance(record, (Header, Node, Process, Frames)) or selection.includes_time(record.t - start_s):
            yield record


def _nothing(log: Chosen, selection: Selection) -> TuimonError:
    """The error for an export without a sample."""
    if selection == Selection():
        return TuimonError(
            f"{plain(log.name)} holds no stack samples",
            "It was recorded with --no-stacks, or py-spy could not read the run",
        )
    return UsageError(
        "nothing is selected: no sample fits all of --phase, --role, --from and --until",
        f"Phases are {', '.join(PHASES)}, of main threads alone; without these options all is exported",
    )
