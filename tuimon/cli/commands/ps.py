"""``tuimon ps``: the trainings on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tuimon.cli.options import parser_of
from tuimon.cli.trainings import rows, trainings_table
from tuimon.launch.attached import find_candidates
from tuimon.views.json_text import json_text

_DOC = "List this user's Python processes that have torch loaded, or markers."


def main(argv: Sequence[str]) -> int:
    parser = parser_of("ps", _DOC)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--all", action="store_true", help="also list processes of a run that make no steps")
    parsed = parser.parse_args(argv)
    listed = rows(find_candidates())
    if parsed.format == "json":
        sys.stdout.write(json_text([row._asdict() for row in listed], indent=2))
    else:
        sys.stdout.write("\n".join(trainings_table(listed, everything=parsed.all)) + "\n")
    return 0
