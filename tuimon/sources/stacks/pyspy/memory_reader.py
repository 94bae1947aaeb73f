"""Our own reader of stacks, for the Pythons that py-spy cannot read: those without a GIL.

It is a program with py-spy's command line (``agent/interpreter/command.py``): a window is a process of its own, whose
CPU time the kernel counts.
"""

from __future__ import annotations

import sys

from tuimon.agent.folder import AGENT_FOLDER

#: The agent's package under a name of its own: ``import tuimon`` would take longer than the rest of the start.
_MAIN = (
    "import sys; package = type(sys)('_tuimon_agent'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['_tuimon_agent'] = package; from _tuimon_agent.interpreter.command import main; "
    "sys.exit(main(sys.argv[2:]))"
)


def command() -> tuple[str, ...]:
    """What to start in the place of py-spy."""
    return (sys.executable, "-I", "-S", "-c", _MAIN, AGENT_FOLDER)
