"""Write the completions of three shells and the manual page anew, from the commands' parsers: make completions.

They are written here, and not by a library: shtab's templates (MPL-2.0) would be part of what tuimon ships.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.make_site import parser_of
from tests.recorded_logs import ROOT
from tuimon.cli.main import COMMANDS

FOLDER = ROOT / "tuimon" / "completions"
MANUAL = ROOT / "docs" / "tuimon.1"
_FILES = ("BEFORE", "AFTER", "DIR", "FILE", "LOG", "PID|FILE")  # metavars of what is a path


class Argument(NamedTuple):
    """An option, or a word by its position."""

    names: tuple[str, ...]  # none of a word by its position
    value: str | None  # what stands for its value in the help; None of a switch
    choices: tuple[str, ...]
    help: str
    is_repeated: bool = False

    @property
    def is_path(self) -> bool:
        """Whether its value is a file or a folder."""
        return self.value is not None and any(part in _FILES for part in (self.value, *self.value.split("|")))


class Command(NamedTuple):
    """A command of tuimon."""

    name: str
    about: str
    parser: argparse.ArgumentParser
    options: tuple[Argument, ...]
    words: tuple[Argument, ...]


def commands() -> list[Command]:
    """All of them, as ``tuimon --help`` lists them."""
    return [_command(name, about) for name, about in COMMANDS.items()]


def _command(name: str, about: str) -> Command:
    parser = parser_of(name)
    parser.color = False  # Python 3.14 colours usages
    found = [_argument(parser, action) for action in parser._actions if action.help is not argparse.SUPPRESS]
    words = [each for each in found if not each.names]
    if name == "run":  # its parser is given tuimon's own options alone
        words.append(Argument((), "FILE", (), "script, module or program", is_repeated=True))
    return Command(name, about, parser, tuple(each for each in found if each.names), tuple(words))


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Argument:
    takes_value = action.nargs != 0
    choices = tuple(map(str, action.choices)) if action.choices is not None else ()
    value = str(action.metavar or action.dest.upper()) if takes_value else None
    text = argparse.HelpFormatter(parser.prog)._expand_help(action) if action.help else ""
    is_repeated = action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction)
    return Argument(tuple(action.option_strings), value, choices, text or " ".join(choices), is_repeated)


def texts() -> dict[Path, str]:
    """What each file has to hold."""
    found = commands()
    makers = {"tuimon.bash": bash, "_tuimon": zsh, "tuimon.fish": fish}
    made = {FOLDER / name: "\n".join(make(found)) + "\n" for name, make in makers.items()}
    return {**made, MANUAL: "\n".join(manual(found)) + "\n"}


# ---- bash


def bash(found: list[Command]) -> Iterator[str]:
    """A function for ``complete -F``; files are what bash completes where it suggests nothing."""
    yield "# Completion of tuimon for bash: written by `make completions`, from the parsers of its commands."
    yield "_tuimon() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" options="" words="" each'
    yield "  COMPREPLY=()"
    yield "  if ((COMP_CWORD == 1)); then"
    yield f'    COMPREPLY=($(compgen -W "{" ".join(command.name for command in found)} --help --version" -- "$word"))'
    yield "    return"
    yield "  fi"
    yield "  if [[ ${COMP_WORDS[1]} == run ]]; then  # what follows the program is its own"
    yield '    for each in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do'
    yield "      [[ $each == -- || $each == -m || $each == *.py ]] && return"
    yield "    done"
    yield "  fi"
    yield '  case "${COMP_WORDS[1]} $before" in'
    for command in found:
        valued = [option for option in command.options if option.value is not None]
        for option in filter(lambda option: option.choices, valued):
            yield f"    {_bash_names(command, [option])})"
            yield f'      COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"))'
            yield "      return ;;"
        if others := [option for option in valued if not option.choices]:
            yield f"    {_bash_names(command, others)}) return ;;"
    yield "  esac"
    yield '  case "${COMP_WORDS[1]}" in'
    for command in found:
        options = " ".join(name for option in command.options for name in option.names)
        words = " ".join(choice for each in command.words for choice in each.choices)
        yield f'    {command.name}) options="{options}"' + (f' words="{words}" ;;' if words else " ;;")
    yield "  esac"
    yield '  [[ $word == -* ]] && words="$options"'
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _tuimon tuimon"


def _bash_names(command: Command, options: list[Argument]) -> str:
    return " | ".join(f'"{command.name} {name}"' for option in options for name in option.names)


# ---- zsh


def zsh(found: list[Command]) -> Iterator[str]:
    """A function for the folder of completions."""
    yield "#compdef tuimon"
    yield "# Completion of tuimon for zsh: written by `make completions`, from the parsers of its commands."
    yield "_tuimon() {"
    yield "  local -a commands=("
    yield from (f"    {_quoted(f'{command.name}:{command.about}')}" for command in found)
    yield "  )"
    yield "  if (( CURRENT == 2 )); then"
    yield "    _describe command commands"
    yield "    _arguments '--help[help]' '--version[version]'"
    yield "    return"
    yield "  fi"
    yield "  local command=$words[2]"
    yield "  shift words"
    yield "  (( CURRENT-- ))"
    yield "  case $command in"
    for command in found:
        specs = [spec for option in command.options for spec in _zsh_option(option)]
        specs += [f"{'*' if word.is_repeated else ''}:{_zsh_value(word)}" for word in command.words]
        yield f"    {command.name})"
        yield "      _arguments -s " + " ".join(("\\\n        " + _quoted(spec)) for spec in specs) + " ;;"
    yield "  esac"
    yield "}"
    yield 'if [[ ${funcstack[1]} == _tuimon ]]; then _tuimon "$@"; else compdef _tuimon tuimon; fi'


def _zsh_option(option: Argument) -> Iterator[str]:
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    for name in option.names:
        value = f":{_zsh_value(option)}" if option.value is not None else ""
        sign = "=" if value and name.startswith("--") else ""
        yield f"{'*' if option.is_repeated else others}{name}{sign}[{_zsh_text(option.help)}]{value}"


def _zsh_value(argument: Argument) -> str:
    suggests = f"({' '.join(argument.choices)})" if argument.choices else "_files" if argument.is_path else " "
    return f"{_zsh_text((argument.value or '').lower())}:{suggests}"


def _zsh_text(text: str) -> str:
    for character in "\\[]:":
        text = text.replace(character, f"\\{character}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ---- fish


def fish(found: list[Command]) -> Iterator[str]:
    """A line for each command and option."""
    yield "# Completion of tuimon for fish: written by `make completions`, from the parsers of its commands."
    yield "complete -c tuimon -f"
    yield "complete -c tuimon -n __fish_use_subcommand -l help"
    yield "complete -c tuimon -n __fish_use_subcommand -l version"
    for command in found:
        yield f"complete -c tuimon -n __fish_use_subcommand -a {command.name} -d {shlex.quote(command.about)}"
        within = f"complete -c tuimon -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            yield f"{within} {_fish_names(option)}{_fish_value(option)} -d {_quoted(option.help)}"
        if any(word.is_path for word in command.words):
            yield f"{within} -F"
        yield from (f"{within} -a '{' '.join(word.choices)}'" for word in command.words if word.choices)


def _fish_names(option: Argument) -> str:
    return " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)


def _fish_value(option: Argument) -> str:
    if option.value is None:
        return ""
    return f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r -F" if option.is_path else " -x"


# ---- the manual page


def manual(found: list[Command]) -> Iterator[str]:
    """A page in the macros of man(7)."""
    yield '.\\" Written by `make completions`, from the parsers of the commands.'
    yield ".TH TUIMON 1"
    yield ".ad l"
    yield ".SH NAME"
    yield "tuimon \\- a terminal monitor for PyTorch training"
    yield ".SH SYNOPSIS"
    yield ".B tuimon\n.I COMMAND\n.RI [ OPTIONS ]"
    yield ".SH DESCRIPTION"
    yield "What is my training waiting for, which line of code causes it, and what would fixing it gain?"
    yield ".SH COMMANDS"
    for command in found:
        yield f".TP\n.B {_troff(command.name)}\n{_troff(command.about)}"
    for command in found:
        yield f".SH TUIMON {_troff(command.name.upper())}"
        usage = command.parser.format_usage().removeprefix("usage: ").split()
        yield f".B {_troff(' '.join(usage))}\n.PP"
        yield from _paragraphs(command.parser.description or "")
        for argument in (*command.words, *command.options):
            names = ", ".join(argument.names)
            value = "" if argument.value is None or (argument.choices and not names) else f" {argument.value}"
            head = f"{names}{value}".strip() or argument.value or ""
            yield f".TP\n.B {_troff(head)}\n{_troff(argument.help)}"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith(" "):
            yield f".nf\n{_troff(paragraph)}\n.fi\n.PP"
        else:
            yield f"{_troff(' '.join(paragraph.split()))}\n.PP"


def _troff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.split("\n"))


if __name__ == "__main__":
    for path, text in texts().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
