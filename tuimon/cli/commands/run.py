"""``tuimon run``: start a training and watch it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tuimon.cli.options import add_watching, options_of, parser_of
from tuimon.cli.writing import write_message
from tuimon.errors import UsageError
from tuimon.launch.resolve import resolve
from tuimon.launch.signals import LeaveSignals, Relay
from tuimon.monitor.opening import open_run
from tuimon.monitor.options import Options
from tuimon.text import plain

_DOC = """\
Start a training, unchanged, and watch it. COMMAND is SCRIPT.py, -m MODULE, or any program (torchrun, bash, uv ...);
everything after it belongs to it.

  tuimon run train.py --lr 0.1
  tuimon run -m mypackage.train
  tuimon run --headless --log run.jsonl -- torchrun --nproc-per-node 2 train.py

The exit code is the training's own, 128+n if signal n ended it."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the target's exit code, 0 when it was left running."""
    parser = parser_of("run", _DOC, "tuimon run [options] [--] COMMAND [ARGS...]")
    add_watching(parser)
    own, words = parser.split_command(argv)
    parsed, unknown = parser.parse_known_args(own)
    if unknown:
        hint = parser.meant(unknown[0])
        if hint is not None:
            raise UsageError(f"run has no option {unknown[0]}", hint)
        program = next((word for word in words if word.endswith(".py")), "train.py")
        ours = [word for word in own if word not in unknown]
        theirs = [*unknown, *(word for word in words if word not in (program, "--"))]
        line = " ".join(["tuimon run", *ours, program, *theirs])
        parser.error(f"{unknown[0]}: the program's own options follow its name: {line}")
    options = options_of(parsed)
    command = resolve(words)
    is_separated = "--" in argv[: len(argv) - len(words)]
    if not is_separated and (misplaced := misplaced_option(words, parser.long_options, parser.value_options)):
        write_message(f"tuimon: {misplaced}")
    if options.headless:
        return _headless(command, options)
    from tuimon.cli.watching import watch_full_screen

    with LeaveSignals() as signals:
        monitor = open_run(command, options)
        try:
            return watch_full_screen(monitor, options, signals).exit_code
        finally:
            if monitor.output is not None:
                print(f"Its output: {monitor.output.path}", flush=True)


def misplaced_option(words: Sequence[str], ours: Collection[str], with_value: Collection[str]) -> str | None:
    """The message on a tuimon option after the script, which gets it; None if there is none, or the script has it."""
    at = next((i for i, word in enumerate(words) if word == "-m" or word.endswith(_SCRIPTS)), 0)
    program = list(words[: at + (2 if words[at] == "-m" else 1)])
    given = (word.partition("=")[0] for word in words[len(program) :])
    option = next((word for word in given if word in ours), None)
    if option is None:
        return None
    module = f"{program[-1].replace('.', '/')}.py"
    if any(_knows(path, option) for path in {*words, module} if path.endswith(_SCRIPTS)):
        return None
    name, line = plain(program[-1]), plain(" ".join(program))
    example = f"tuimon run {option}{' ...' if option in with_value else ''} {line}"
    return f"{option} goes to {name}; tuimon's own options go before the script: {example}"


_SCRIPTS = (".py", ".sh")


def _knows(path: str, option: str) -> bool:
    """True if a script contains the option, or a field, parameter or quoted name that a library may turn into it."""
    name = option.removeprefix("--").replace("-", "[-_]")
    known = rf"""{option}(?![\w-])|["']{name}["']|^\s*{name}\s*:|[(,]\s*{name}\s*[:=]"""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return re.search(known, file.read(), re.MULTILINE) is not None
    except OSError:
        return False


def _headless(command: Sequence[str], options: Options) -> int:
    with Relay() as relay:
        monitor = open_run(command, options)
        launched = monitor.launched
        assert launched is not None
        relay.forward_to(launched)
        try:
            from tuimon.cli.watching import watch_headless

            watch_headless(monitor, options.refresh_s, step=relay.step)
        except Exception as error:  # noqa: BLE001  (if tuimon breaks, the training still runs to its own exit code)
            write_message(
                f"tuimon: no longer watching: {type(error).__name__}: {plain(str(error))}; the training goes on"
            )
        while not launched.wait(0.25):
            relay.step()
        ended = launched.poll()
    return ended.exit_code if ended is not None and ended.exit_code is not None else 0
