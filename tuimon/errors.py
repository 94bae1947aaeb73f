"""Errors shown to the user, each with its cause and the next step; one class for each error that some code catches.

TuimonError
├── UsageError            the command line requests something impossible        exit 2
├── LaunchError           the operating system did not start the command        exit 1
├── TargetError           the process cannot be monitored                       exit 1
│   └── CannotInject      the hooks cannot be brought into the process
├── LogError              a log that cannot be written                          exit 1
├── NotALog               not a tuimon log, or one with a newer schema          exit 1
│   └── UnreadableLog     the operating system denies reading it
├── TraceError            no trace could be taken, or a file is not one         exit 1
└── NotComparable         two runs whose difference would mean nothing          exit 3
"""

from __future__ import annotations

from tuimon.text import plain


class TuimonError(Exception):
    """An error for the user: ``message`` says what happened, ``hint`` is the next step; both are made safe here."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = plain(message)
        self.hint = None if hint is None else plain(hint)
        super().__init__(self.message)


class UsageError(TuimonError):
    """The command line requests something impossible."""

    exit_code = 2


class LaunchError(TuimonError):
    """The operating system did not start the command."""


class TargetError(TuimonError):
    """The process to attach to cannot be monitored."""


class CannotInject(TargetError):
    """The hooks cannot be brought into the process; nothing was changed in it."""


class LogError(TuimonError):
    """The log cannot be written."""


class NotALog(TuimonError):
    """The file is not a tuimon log that this version can read."""


class UnreadableLog(NotALog):
    """The operating system denies reading the file, or reading on."""


class TraceError(TuimonError):
    """No trace of the training could be taken, or a file is not a trace of torch.profiler."""


class NotComparable(TuimonError):
    """The difference of two runs would show nothing about the code."""

    exit_code = 3
