"""``tuimon completions``: the script with which a shell completes tuimon's commands and options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.resources import files

from tuimon.cli.options import parser_of

_DOC = """\
Print the completion script of a shell. A wheel installs all three where shells look for them below the environment; for
any other place:

  tuimon completions bash > ~/.local/share/bash-completion/completions/tuimon
  tuimon completions zsh > "${fpath[1]}/_tuimon"
  tuimon completions fish > ~/.config/fish/completions/tuimon.fish"""

FILES = {"bash": "tuimon.bash", "zsh": "_tuimon", "fish": "tuimon.fish"}


def main(argv: Sequence[str]) -> int:
    parser = parser_of("completions", _DOC)
    parser.add_argument("shell", choices=FILES)
    name = FILES[parser.parse_args(argv).shell]
    sys.stdout.write((files("tuimon") / "completions" / name).read_text(encoding="utf-8"))
    return 0
