"""``tuimon view``: replay a log."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.cli.options import add_metrics, add_run_choice, metrics_of, number_between, parser_of, terminal_can_draw
from tuimon.cli.quick_start import collect_seldom
from tuimon.errors import UsageError
from tuimon.monitor.opening import open_log
from tuimon.monitor.options import Options
from tuimon.text import plain

_DOC = """\
Show a recorded session in the full screen; one that is still being written is followed. In a folder, the latest run,
with the logs of all its nodes."""


def main(argv: Sequence[str]) -> int:
    parser = parser_of("view", _DOC)
    parser.add_argument("log", metavar="LOG|DIR", help="what --log has written")
    parser.add_argument(
        "--speed",
        type=number_between(0.001, 1000),
        metavar="X",
        help="play at X times the recorded pace instead of all at once",
    )
    parser.add_argument("--headless", action="store_true", help="lines on stderr, for as long as the log is written")
    add_run_choice(parser)
    add_metrics(parser)
    parsed = parser.parse_args(argv)
    collect_seldom()
    observers = metrics_of(parsed)
    monitor = open_log(parsed.log, parsed.speed, parsed.run, observers)
    headless = parsed.headless or (observers and not terminal_can_draw())
    if not headless and not terminal_can_draw():
        raise UsageError("view needs a terminal", f"Without one: tuimon report {plain(parsed.log)}")
    from tuimon.cli.watching import watch

    return watch(monitor, Options(headless=bool(headless)))
