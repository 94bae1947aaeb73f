"""What the app needs of a monitor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.diagnosis.steady import Change
    from tuimon.session.session import Session
    from tuimon.sources.stacks.closeup import CloseUp
    from tuimon.views.tui.panes.output import Tail


class LaunchedRun(Protocol):
    """A process that this tuimon started."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...


class Watched(Protocol):
    """A run that is being watched: live, or played back from a log."""

    @property
    def session(self) -> Session:
        """The current picture."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """The rules' verdicts on it, the most important first."""
        ...

    @property
    def changes(self) -> Sequence[Change]:
        """When the primary verdict changed, oldest first."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Its exit code, once it has ended and where it can be known."""
        ...

    @property
    def output(self) -> Tail | None:
        """Its output, where it is captured."""
        ...

    @property
    def closeup(self) -> CloseUp | None:
        """Looks at code and processes on demand."""
        ...

    @property
    def target(self) -> LaunchedRun | None:
        """The process that we launched; None when attached or playing back."""
        ...

    def tick(self) -> bool:
        """Take in what has come since the last call; whether anything came."""
        ...

    def begin_end(self) -> None:
        """Begin to end the launched run; ``tick`` takes it further."""
        ...

    @property
    def ending(self) -> str | None:
        """How far ending it has come, for people; None when it was not asked for."""
        ...
