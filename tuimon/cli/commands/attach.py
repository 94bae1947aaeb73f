"""``tuimon attach``: watch a training that runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tuimon.cli.options import add_watching, number_between, options_of, parser_of
from tuimon.cli.writing import write_message
from tuimon.errors import UsageError
from tuimon.launch.attached import attach, find_candidates
from tuimon.monitor.hooks import Hooks
from tuimon.monitor.opening import open_attach
from tuimon.monitor.options import Options
from tuimon.text import plain

_DOC = """\
Watch a Python process that is already running. Without --inject it is not changed. It goes on when tuimon quits.
A training that `tuimon run` started, or that imports tuimon, has markers: steps and phases are measured. For any other,
phases are inferred from stack samples. Without PID, pick one from the list."""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 once the user has left it or the training has ended."""
    parsed = _parser().parse_args(argv)
    parsed.headless |= parsed.duration is not None
    options = options_of(parsed)
    if parsed.keep_hooks and not parsed.inject:
        raise UsageError("--keep-hooks keeps what --inject brings in", "Add --inject")
    if parsed.inject and not parsed.markers:
        raise UsageError("--inject brings hooks in, and --no-markers leaves them out", "Leave out one of them")
    pid = parsed.pid if parsed.pid is not None else _pick(options)
    if pid is None:
        return 0
    attach(pid)
    hooks = Hooks(pid, keep=parsed.keep_hooks)
    try:
        if parsed.inject:
            print(f"tuimon: {hooks.bring_in()}", file=sys.stderr, flush=True)
        from tuimon.cli.watching import watch

        return watch(open_attach(pid, options, None if options.headless else hooks), options, parsed.duration)
    finally:
        message = hooks.withdraw()
        if message:
            write_message(f"tuimon: {message}")  # the terminal may be lost


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("attach", _DOC, "tuimon attach [options] [PID]")
    add_watching(parser)
    parser.add_argument(
        "--duration", type=number_between(0.1), metavar="SECONDS", help="leave after this many seconds (headless)"
    )
    parser.add_argument(
        "--inject",
        action="store_true",
        help="bring tuimon's hooks into the running training, for measured steps and phases (with gdb; from Python "
        "3.14 on with sys.remote_exec). It is stopped for about 0.1 s; on leaving, the hooks are withdrawn",
    )
    parser.add_argument("--keep-hooks", action="store_true", help="leave the hooks of --inject in the training")
    parser.add_argument("pid", type=_pid, nargs="?", metavar="PID", help="the process; without it, choose from a list")
    return parser


def _pid(text: str) -> int:
    """The text as a process id; for a file's name, the error adds the command that shows a log."""
    try:
        return int(text)
    except ValueError:
        hint = f"; a log is shown by: tuimon view {plain(text)}" if os.path.exists(text) else ""
        raise argparse.ArgumentTypeError(f"{plain(text)!r} is not a process id{hint}") from None


def _pick(options: Options) -> int | None:
    from tuimon.cli.trainings import helpers, rows, trainings_table

    listed = rows(find_candidates())
    if not options.headless:
        from tuimon.views.tui.sheets.picker import PickerRow, pick

        helping = helpers(listed)
        return pick(
            [
                PickerRow(row.pid, row.command, row.user, row.cpu_ratio, row.markers, row.pid in helping)
                for row in listed
            ]
        )
    print("\n".join(trainings_table(listed)), flush=True)
    raise UsageError(
        "attach needs a PID", "tuimon attach PID, with one of the above" if listed else "No training runs."
    )
