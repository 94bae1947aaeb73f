"""Code around a line: read off the app's thread once, then kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.dom import DOMNode

from tuimon.views.tui.drawing.lines import Line, line

if TYPE_CHECKING:
    from tuimon.records import Place, Process
    from tuimon.sources.stacks.closeup import CloseUp

#: Lines with their numbers.
Code = Sequence[tuple[int, str]]
_KEPT_MOST = 256


def no_code(_where: Place) -> Code:
    """For where code cannot be read."""
    return ()


class CodeAround:
    """The code that a sheet has read of the user's files; the end of its worker notifies the sheet of more."""

    def __init__(self, sheet: DOMNode, closeup: CloseUp | None) -> None:
        self._sheet = sheet
        self._closeup = closeup
        self._requested: set[tuple[str, int]] = set()
        self._read: dict[tuple[str, int], Code] = {}

    def of(self, file: str, number: int, process: Process | None, not_after_unix_s: float | None = None) -> Code:
        """The lines around one, if they have been read; else reading them as ``process`` could is requested."""
        key = (file, number)
        if (
            process is not None
            and self._closeup is not None
            and key not in self._requested
            and len(self._requested) < _KEPT_MOST
        ):
            self._requested.add(key)
            closeup, by = self._closeup, process

            def read() -> None:
                self._read[key] = closeup.code(*key, by, not_after_unix_s)

            self._sheet.run_worker(read, thread=True)
        return self._read.get(key, ())


def code_lines(code: Code, number: int) -> list[Line]:
    """Numbered lines of code, the one meant marked."""
    digits = max((len(str(n)) for n, _ in code), default=0)
    common = min((len(text) - len(text.lstrip()) for _, text in code if text.strip()), default=0)
    return [
        line(
            "    ",
            (f"{n:>{digits}} ", "key bold" if n == number else "faint"),
            ("▏" if n == number else "│", "key bold" if n == number else "faint"),
            (f" {text[common:]}", "strong" if n == number else "dim"),
        )
        for n, text in code
    ]
