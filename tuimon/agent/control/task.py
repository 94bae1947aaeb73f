"""One order of a monitor, in the hands of its command."""

import time
from typing import Any, Callable

from ..ring.control_words import ANSWER_WORD, Order, State, is_alive, order_in, slot_word


class Task:
    """An order that has been taken. Its answers go into the ring; it belongs to the thread that reports."""

    __slots__ = ("_name_id", "_words", "argument", "command", "is_held", "is_over", "needs_steps", "number", "value")

    def __init__(self, words: Any, name_id: Callable[[str], int], command: int, number: int, argument: int) -> None:
        """``words``: the control words of this process's ring; ``name_id`` interns a string there."""
        self._words = words
        self._name_id = name_id
        self.command = command
        self.number = number
        self.argument = argument
        self.value = 0
        self.needs_steps = False  # whether its command's ``step`` is called
        self.is_over = False
        self.is_held = False  # it goes on until its monitor is gone for long, which only ``hold`` checks

    def order(self) -> Order:
        """The order in the command's slot as it is now."""
        return order_in(self._words, self.command)

    def is_wanted(self) -> bool:
        """True if its monitor is alive and still wants this."""
        order = order_in(self._words, self.command)
        return order.number == self.number and is_alive(order.alive_ns, time.monotonic_ns())

    def report(self, value: int) -> None:
        """How much has been done, in units of the command."""
        self.value = value
        self._answer(State.WORKING, "")

    def finish(self, value: int, text: str = "") -> None:
        """All is done."""
        self.value = value
        self._end(State.DONE, text)

    def refuse(self, reason: str) -> None:
        """Report that it cannot be done here, for the reason given; nothing was changed."""
        self._end(State.REFUSED, reason)

    def fail(self, reason: str) -> None:
        """Report that it went wrong."""
        self._end(State.FAILED, reason)

    def stop(self) -> None:
        """Report that it was stopped: nobody wants it any more."""
        self._end(State.STOPPED, "")

    def _end(self, state: State, text: str) -> None:
        if not self.is_over:
            self.is_over = True
            self._answer(state, text)

    def _answer(self, state: State, text: str) -> None:
        words, at = self._words, slot_word(self.command) + ANSWER_WORD
        words[at + 3] = self._name_id(text) if text else 0
        words[at + 2] = min(max(0, self.value), (1 << 63) - 1)
        words[at + 1] = int(state)
        words[at] = self.number  # last: now the answer is to this order
