"""``tuimon mcp``: answers for coding assistants, over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.cli.commands.explain import rule_named
from tuimon.cli.commands.ps import table
from tuimon.cli.options import parser_of
from tuimon.launch.candidates import find_candidates
from tuimon.views.mcp.opened import Trainings
from tuimon.views.mcp.server import server
from tuimon.views.mcp.tools import Tools

_DOC = """\
Answer a coding assistant's questions about your trainings and logs, over the Model Context Protocol on stdin and
stdout: for the assistant's configuration, not for people. It opens no socket, reads only your own processes and
files, and changes nothing. Tools: trainings, verdict, evidence, hot_lines, stacks, diff, explain.
Needs the package mcp: pip install "tuimon[mcp]"."""


def main(argv: Sequence[str]) -> int:
    """Run the command until stdin is closed."""
    parser_of("mcp", _DOC).parse_args(argv)
    trainings = Trainings()
    tools = Tools(trainings, lambda: table(find_candidates()), rule_named)
    try:
        server(tools).run("stdio")
    finally:
        trainings.close()
    return 0
