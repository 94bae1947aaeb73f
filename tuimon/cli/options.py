"""Options that commands share."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tuimon.errors import UsageError
from tuimon.monitor.options import Observer, Options
from tuimon.text import plain

if TYPE_CHECKING:
    from tuimon.monitor.reactions import Reaction


class _Paragraphs(argparse.HelpFormatter):
    """Descriptions in paragraphs as wide as the terminal; indented lines, which are examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = text.split("\n\n")
        return "\n\n".join(part if part.startswith(" ") else fill(part, width, indent) for part in parts)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are two lines: the mistake, then the option probably meant or a pointer to the help."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a word that is not among the choices. Raises ArgumentError."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        named = f"{action.option_strings[-1]}: " if action.option_strings else ""
        hint = did_you_mean(str(value), known, cutoff=0.5)
        text = f"{named}{value!r} is not one of {', '.join(known)}"
        raise argparse.ArgumentError(None, f"{text}. {hint}" if hint else text)

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix(_UNKNOWN).split()[0] if message.startswith(_UNKNOWN) else ""
        if message.startswith(_MISSING):
            message = f"{message.removeprefix(_MISSING)} is missing"
        hint = self.meant(unknown) or f"{self.prog} --help lists the options"
        self.exit(2, f"{self.prog}: {plain(message)}\n  {hint}\n")

    @property
    def value_options(self) -> list[str]:
        """The options that take a value in the next word."""
        return [name for name, action in self._option_string_actions.items() if action.nargs is None]

    def split_command(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """tuimon's own options, and the target's command line, which begins with the first other word or ``-m``."""
        at = 0
        while at < len(words):
            word = words[at]
            if word == "--":
                return list(words[:at]), list(words[at + 1 :])
            if word == "-m" or not word.startswith("-"):
                break
            at += 2 if word in self.value_options else 1
        return list(words[:at]), list(words[at:])

    @property
    def long_options(self) -> list[str]:
        """The options of two dashes, ``--help`` aside, which every program has."""
        return [name for name in self._option_string_actions if name.startswith("--") and name != "--help"]

    def meant(self, word: str) -> str | None:
        """A sentence that names the option that the user probably meant; None if no option is close to the word."""
        if word in ("-o", "--output") and "--log" in self._option_string_actions:
            return "--log FILE records the run"
        return did_you_mean(word.partition("=")[0], self._option_string_actions) if word.startswith("--") else None


_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.75, before: str = "") -> str | None:
    """``Did you mean --headless?``; None if no known word is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"Did you mean {before}{close[0]}?" if close else None


def finding_name(name: str) -> str:
    """A rule, cause or severity. Raises ArgumentTypeError if there is no such name."""
    from tuimon.diagnosis.rulebook import FINDING_NAMES

    if name not in FINDING_NAMES:
        hint = did_you_mean(name, FINDING_NAMES) or "tuimon explain lists the rules"
        raise argparse.ArgumentTypeError(f"{name!r} is not a rule, a cause or a severity. {hint}")
    return name


def parser_of(command: str, doc: str, usage: str | None = None) -> _Parser:
    return _Parser(
        prog=f"tuimon {command}",
        usage=usage,
        description=doc,
        allow_abbrev=False,
        formatter_class=_Paragraphs,
    )


def add_watching(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``run`` and ``attach`` share."""
    parser.add_argument("--headless", action="store_true", help="lines on stderr instead of the full screen")
    parser.add_argument(
        "--interval",
        dest="interval_s",
        type=number_between(0.1, 3600),
        metavar="SECONDS",
        help="length of a window, and time between two refreshes (default: 1; the full screen refreshes every 0.5)",
    )
    parser.add_argument(
        "--no-markers", dest="markers", action="store_false", help="no hooks in the training; attach: do not read them"
    )
    parser.add_argument("--no-gpu", dest="gpu", action="store_false", help="do not query the driver for GPU counters")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="record once which lines allocate memory that is not freed; with run, also at a CUDA out-of-memory error",
    )
    group = parser.add_argument_group("stack samples")
    group.add_argument("--no-stacks", dest="stacks", action="store_false", help="do not sample stacks")
    group.add_argument("--no-native", dest="native", action="store_false", help="do not sample what runs below Python")
    group.add_argument(
        "--rate",
        dest="rate_hz",
        type=number_between(0.1, 1000),
        metavar="HZ",
        help="sample stacks at most this many times a second",
    )
    group.add_argument(
        "--max-cpu",
        dest="max_cpu_ratio",
        type=lambda text: number_between(0.1, 10_000)(text) / 100,
        metavar="PERCENT",
        help="CPU that sampling may use, in percent of one core (default: 3; headless: 2)",
    )
    group = parser.add_argument_group("log")
    group.add_argument(
        "--log",
        type=_log_path,
        metavar="FILE|DIR",
        help="record the session to this file (.gz: compressed), or to a new and compressed one in this folder",
    )
    group.add_argument(
        "--run",
        metavar="NAME",
        help="name that the logs of one run on many nodes share (default: its job id or rendezvous id)",
    )
    group.add_argument("--force", action="store_true", help="let --log replace the log of an earlier run")
    group = parser.add_argument_group("commands run for findings")
    group.add_argument(
        "--on-hang",
        type=_command,
        metavar="CMD",
        help="run this command, without a shell, once when the training hangs; the finding, with the stacks of all "
        "ranks, is JSON on its stdin",
    )
    group.add_argument(
        "--on-finding",
        type=_reaction,
        action="append",
        default=[],
        metavar="RULE=CMD",
        help="run such a command once for each finding of a rule (input_bound), cause (no_workers) or severity "
        "(critical, warning); may be given several times",
    )
    add_metrics(parser)


def add_run_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``view`` and ``report`` share."""
    parser.add_argument("--run", metavar="NAME", help="choose this run of a folder, not the latest")


def options_of(parsed: argparse.Namespace) -> Options:
    """The parsed words as Options. Raises UsageError if they contradict each other."""
    if parsed.force and not parsed.log:
        raise UsageError("--force lets --log replace a log, and there is none", "Add --log FILE")
    for given, option, source, reason in (
        (parsed.memory, "--memory", "markers", "needs tuimon's hooks in the training"),
        (parsed.on_hang, "--on-hang", "markers", "needs the markers of steps"),
        (parsed.rate_hz, "--rate", "stacks", "is for stack samples"),
        (parsed.max_cpu_ratio, "--max-cpu", "stacks", "is for stack samples"),
    ):
        if given and not getattr(parsed, source):
            without = f"--no-{source}"
            raise UsageError(f"{option} {reason}, and {without} leaves them out", f"Leave out {option} or {without}")
    parsed.headless |= not terminal_can_draw()
    parsed.observers = (*_reactions(parsed), *metrics_of(parsed))
    named: dict[str, Any] = {name: getattr(parsed, name) for name in Options.__struct_fields__}  # Any: by argparse
    return Options(**named)


def terminal_can_draw() -> bool:
    """True if the full screen can be drawn: all three streams on a terminal that is not dumb."""
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        return False
    try:
        # the app reads keys from stdin and draws on stderr
        return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    except ValueError:  # closed
        return False


def _reactions(parsed: argparse.Namespace) -> tuple[Observer, ...]:
    """The observers that run commands for findings; empty if no command was given."""
    if parsed.on_hang is None and not parsed.on_finding:
        return ()
    from tuimon.monitor.reactions import Reaction, Reactions

    hang = [Reaction("hang", parsed.on_hang)] if parsed.on_hang is not None else []
    return (Reactions((*hang, *parsed.on_finding), parsed.headless),)


def _command(text: str) -> str:
    """A command line that can be split into words, the first of which can be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be split into words: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("the command is empty")
    if shutil.which(words[0]) is None:
        reason = "it is not executable" if os.path.exists(words[0]) else "there is no such program"
        raise argparse.ArgumentTypeError(f"{words[0]!r} cannot be run: {reason}")
    return text


def _reaction(text: str) -> Reaction:
    from tuimon.monitor.reactions import Reaction

    name, equals, command = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form RULE=CMD")
    return Reaction(finding_name(name), _command(command))


def _log_path(text: str) -> str:
    """The path of a log, which a shell's empty variable is not, and stdout neither."""
    if text in ("", "-"):
        raise argparse.ArgumentTypeError("must name a file or a folder")
    return text


def number_between(
    lowest: float, highest: float = math.inf, kind: type[int] | type[float] = float
) -> Callable[[str], float]:
    """The type of an option that takes a number within these bounds."""
    bounds = f"from {lowest:g} to {highest:g}" if highest < math.inf else f"{lowest:g} or more"

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' * (kind is int)}number") from None
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"must be {bounds}")
        return value

    return parse


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the option for metrics, of all commands that follow a session."""
    group = parser.add_argument_group("metrics for other systems")
    group.add_argument(
        "--prometheus", metavar="[ADDR:]PORT", help="serve metrics for Prometheus; without ADDR only on 127.0.0.1"
    )


def metrics_of(parsed: argparse.Namespace) -> tuple[Observer, ...]:
    """The metrics view, not yet started, if it was requested; else empty, and nothing is imported.

    Raises UsageError for a wrong address or an extra that is not installed, before anything starts.
    """
    if parsed.prometheus is None:
        return ()
    try:
        from tuimon.views.prometheus import MetricsServer, Snapshots, parse_address

        address = parse_address(parsed.prometheus)
    except ValueError as error:
        raise UsageError(f"--prometheus: {error}") from None
    except ImportError as error:
        from tuimon.installation import install_command

        raise UsageError(f"--prometheus needs a package: {error}", install_command("prometheus-client")) from None
    return (MetricsServer(Snapshots(), address),)
