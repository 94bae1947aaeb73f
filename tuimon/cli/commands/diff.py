"""``tuimon diff``: compare two logs, or two folders of runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from tuimon.cli.options import number_between, parser_of
from tuimon.cli.writing import Output, add_output
from tuimon.errors import NotComparable
from tuimon.sources.log.runs import choose_all
from tuimon.text import plain
from tuimon.views.comparison.result import Comparison
from tuimon.views.diff import compare_logs, text_diff
from tuimon.views.format import WIDTH
from tuimon.views.json_text import json_text

_DOC = """\
Did it help? Compare what was recorded before a change with what was recorded after it: step time, phases, GPU,
memory, lines and findings, each with its 95 % interval.
BEFORE and AFTER are logs, or folders; each run in a folder counts as one measurement, the nodes of a run together."""

#: Exit codes of --fail-if-slower.
_SLOWER, _CANNOT_TELL = 1, 3


def main(argv: Sequence[str]) -> int:
    parser = parser_of("diff", _DOC)
    parser.add_argument("before", metavar="BEFORE", help="what --log has written, or a folder of runs")
    parser.add_argument("after", metavar="AFTER", help="the same, after the change")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    add_output(parser)
    parser.add_argument(
        "--fail-if-slower",
        type=lambda text: number_between(0, 1000)(text.rstrip(" %")) / 100,
        metavar="PERCENT",
        help="exit code 1 when AFTER is certainly slower by more than this, 3 when that is uncertain, 0 otherwise",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="compare different programs, runs on different machines, or of steps that differ in size",
    )
    parsed = parser.parse_args(argv)
    before, after = choose_all(parsed.before), choose_all(parsed.after)
    output = Output(parsed)
    if os.path.realpath(parsed.before) == os.path.realpath(parsed.after) and not parsed.anyway:
        raise NotComparable(
            f"BEFORE and AFTER are the same: {plain(parsed.after)}",
            "Name the log of another run, or compare this one with itself with --anyway",
        )
    found = compare_logs(before, after, anyway=parsed.anyway)
    on_terminal = parsed.output is None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else WIDTH
    output.write(json_text(found, indent=2) if parsed.format == "json" else text_diff(found, width))
    return 0 if parsed.fail_if_slower is None else _judge(found, parsed.fail_if_slower)


def _judge(found: Comparison, tolerance: float) -> int:
    """The exit code of --fail-if-slower; if it is not 0, the reason goes to stderr."""
    slowest, fastest = 1 / found.speedup.low, 1 / found.speedup.high
    if slowest <= 1 + tolerance:
        return 0
    certain = fastest > 1 + tolerance
    verdict = (
        f"slower by more than {100 * tolerance:g} %"
        if certain
        else f"cannot tell whether slower by {100 * tolerance:g} %"
    )
    print(f"tuimon diff: {verdict}: {plain(found.headline)}", file=sys.stderr)
    return _SLOWER if certain else _CANNOT_TELL
