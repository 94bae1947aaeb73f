"""An agent that does what it is ordered to as a test says."""

from __future__ import annotations

import os
from pathlib import Path

from tuimon.agent.ring.control_words import Answer, Command, State
from tuimon.sources.control_channel import ControlError


class FakeAgent:
    """The agents of all processes, and the one order that is under way: its channel and its request at once."""

    def __init__(self, folder: Path) -> None:
        self.path, self.pid, self.channel, self.number = str(folder / "1-1.ring"), os.getpid(), self, 1
        self.command = Command.MEMORY
        self.orders: list[tuple[int, Command, int]] = []
        self.refusals: list[str] = []  # of the next orders
        self.answer: Answer | None = None
        self.words = ""
        self.quiet_s, self.closed = 0.0, 0

    def give(self, pid: int, command: Command, argument: int) -> FakeAgent:
        """As ``give_order``."""
        if self.refusals:
            raise ControlError(self.refusals.pop(0))
        self.orders.append((pid, command, argument))
        self.pid, self.command, self.answer, self.quiet_s = pid, command, None, 0.0
        return self

    def order(self, *_: object) -> FakeAgent:
        return self

    def finish(self, words: str = "") -> None:
        self.answer, self.words = Answer(1, State.DONE, 5, 1), words

    def fail(self, why: str) -> None:
        self.answer, self.words = Answer(1, State.REFUSED, 0, 1), why

    @property
    def is_over(self) -> bool:
        return self.answer is not None and self.answer.state != State.WORKING

    def poll(self) -> Answer | None:
        return self.answer

    def result(self) -> Answer:
        assert self.answer is not None
        if self.answer.state == State.REFUSED:
            raise ControlError(self.words)
        return self.answer

    def text(self, _number: int) -> str:
        return self.words

    def no_answer(self) -> ControlError:
        return ControlError("no backward pass has ended")

    def close(self) -> None:
        self.closed += 1
