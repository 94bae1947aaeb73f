"""The standard streams, messages for people, and the output of a command: stdout, or a file of its own."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TextIO

from tuimon.errors import TuimonError, UsageError
from tuimon.sources.outputs import check_output, output_file

_STDOUT = "-"


def replace_closed_streams() -> None:
    """Open /dev/null for each closed stream, so that no file of tuimon's gets its number and no code meets None.

    A training does not inherit these: its streams are closed, as without tuimon.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest number that is free: the stream's own
            setattr(sys, name, open(handle, mode, encoding="utf-8"))  # noqa: SIM115  (open to the end)


def print_any_text() -> None:
    """Have stdout show ``?`` for characters that its encoding lacks, as a Latin-1 terminal's; stderr shows escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def write_message(text: str) -> None:
    """Write a line on stderr, as stdout is for data; a stderr that is closed costs the message and nothing else."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def takes_output() -> bool:
    """True if the terminal takes output; behind a stalled connection it would block tuimon for hours."""
    try:
        return bool(select.select([], [1], [], 0.5)[1])  # the last message waits no longer for the terminal
    except OSError:
        return False


def silence(*handles: int) -> None:
    """Point these file descriptors at /dev/null; their numbers stay taken."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for handle in handles:
        os.dup2(null, handle)
    os.close(null)


def add_output(parser: argparse.ArgumentParser, text: str = "write there instead of to stdout") -> None:
    """Add ``-o`` and ``--force``; ``text``: the help of the first."""
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    parser.add_argument("--force", action="store_true", help="let -o replace a file; a log is never replaced")


class Output:
    """The output that ``-o`` and ``--force`` choose."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        """Raises TuimonError if the output cannot be written."""
        self._path: str | None = None if parsed.output == _STDOUT else parsed.output
        self._force: bool = parsed.force
        if self._path is None and self._force:
            raise UsageError("--force lets -o replace a file, and there is none", "Add -o FILE")
        if self._path is not None:
            check_output(self._path, force=self._force)

    @contextlib.contextmanager
    def opened(self) -> Iterator[TextIO]:
        """The stream to write to; a file appears once complete. Raises TuimonError for an OSError in the block."""
        if self._path is not None:
            with (
                output_file(self._path, force=self._force) as file,
                io.TextIOWrapper(file, encoding="utf-8", newline="") as out,
            ):
                yield out
            return
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:
            raise  # whoever read tuimon's output has gone: no error
        except OSError as error:
            raise TuimonError(f"stdout cannot be written: {error.strerror}") from error

    def write(self, text: str) -> None:
        """Write all of it. Raises TuimonError."""
        with self.opened() as out:
            out.write(text)
