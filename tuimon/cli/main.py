"""The command line: finds the command, runs it, turns errors into a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from tuimon.cli.quick_start import without_collections
from tuimon.cli.writing import print_any_text, replace_closed_streams, silence, write_message
from tuimon.errors import TuimonError

#: Each command is ``tuimon.cli.commands.NAME`` with ``main(argv) -> exit code``; only the one that runs is imported.
COMMANDS = {
    "demo": "no training at hand? look at a recorded one",
    "run": "start a training and watch it",
    "attach": "watch a training that is already running",
    "view": "replay a log, or follow one that is still being written",
    "report": "sum up a log as text, JSON or an HTML page",
    "explain": "what a verdict means, how sure it is, what to do",
    "diff": "did it help? two logs compared, or folders of several runs each",
    "export": "a log in another tool's format: Perfetto, speedscope, collapsed stacks",
    "trace": "record operators and kernels of the next steps of a running training",
    "ps": "list the trainings on this machine",
    "doctor": "what works on this machine, what does not, and how to fix it",
    "completions": "what bash, zsh or fish needs to complete commands and options",
}

_HELP = """\
usage: tuimon COMMAND ...

What is my training waiting for, which line of code causes it, and what would fixing it gain?

{commands}

  tuimon demo                    no training at hand? look at a recorded one
  tuimon run train.py            start train.py and watch it
  tuimon attach                  pick a running training
  tuimon COMMAND --help          the options of a command
  tuimon --version
"""


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command; returns tuimon's exit code."""
    replace_closed_streams()
    print_any_text()
    try:
        return _dispatch(argv)
    except TuimonError as error:
        write_message(f"tuimon: {error.message}")
        if error.hint:
            write_message(f"  {error.hint}")
        return error.exit_code
    except BrokenPipeError:
        # whoever read tuimon's output has gone; Python would complain again when it flushes at exit
        with suppress(OSError, ValueError, AttributeError):  # closed, or no file
            silence(sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except SystemExit as leave:  # argparse: --help and usage errors
        return leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 2
    finally:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            # Python would make the exit code 120 when it cannot flush at exit
            with suppress(OSError, ValueError, AttributeError):
                silence(sys.stderr.fileno())


def _dispatch(argv: Sequence[str]) -> int:
    first = argv[0] if argv else ""
    if first in COMMANDS:
        with without_collections():
            command = import_module(f"tuimon.cli.commands.{first}")
        code: int = command.main(list(argv[1:]))
        sys.stdout.flush()
        return code
    if first == "help" and len(argv) > 1:
        return _dispatch([argv[1], "--help"])
    if first in ("-h", "--help", "help"):
        print(help_text(), end="", flush=True)
        return 0
    if first in ("-V", "--version"):
        from tuimon.cli.commands.doctor import version_lines

        print("\n".join(version_lines()), flush=True)
        return 0
    if not argv:
        write_message(help_text().rstrip())
        return 2
    from tuimon.cli.options import did_you_mean

    is_script, commands = first.endswith(".py") or os.path.exists(first), f"Commands: {', '.join(COMMANDS)}"
    hint = f"Did you mean tuimon run {first}?" if is_script else did_you_mean(first, COMMANDS, 0.6, "tuimon ")
    write_message(f"tuimon: there is no command {first!r}\n  {hint or commands}")
    return 2


def help_text() -> str:
    lines = [f"  {name:<11}  {text}" for name, text in COMMANDS.items()]
    return _HELP.format(commands="\n".join(lines))
