"""The monitor's side of the control words: gives an order, keeps it alive, reads the answers.

::

    with open_channel(pid) as channel:
        request = channel.order(Command.TRACE, steps)    # ControlError if the agent cannot do it
        while not request.is_over:
            request.poll()                               # at least twice a second: it is the heartbeat as well
        ...
        channel.order(Command.WITHDRAW).wait()           # waits for the end, or raises ControlError
"""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections.abc import Callable
from types import TracebackType

from tuimon.agent.ring import files, layout
from tuimon.agent.ring.control_words import (
    BELL_WORD,
    COMMANDS_WORD,
    CONTROL_BYTES,
    CONTROL_OFFSET,
    CONTROL_VERSION,
    NUMBER_LIMIT,
    VERSION_WORD,
    Answer,
    Command,
    Order,
    State,
    answer_in,
    check_of,
    is_alive,
    is_whole,
    order_in,
    slot_word,
)
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.errors import TuimonError
from tuimon.proc import procfs
from tuimon.text import plain

#: Words for each command in messages, to follow "to" or "cannot".
WORK = {
    Command.SAMPLE: "sample its own stacks",
    Command.TRACE: "trace its steps",
    Command.MEMORY: "record the allocator's history",
    Command.WITHDRAW: "remove its hooks",
    Command.HOLD: "keep its hooks as long as tuimon runs",
    Command.COLLECTIVES: "count its collectives",
    Command.CALLS: "count its calls",
}
#: Seconds for which an order waits for a backward pass to take it: the training may be stuck, or do something else.
ANSWER_S = 10.0
#: Seconds between two polls of the agent's answer.
POLL_S = 0.05


_TRY_WHILE_IT_RUNS = "Try again while the training runs, for less if it ends soon"


class HookHolder:
    """Keeps hooks in trainings by heartbeats, from a thread of its own, until ``close`` or the end of this process."""

    def __init__(self) -> None:
        self._held: dict[int, Request] = {}  # by process
        self._changing = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, pid: int, *, only_left: bool = False) -> bool:
        """Keep the hooks of a process from now on; False if its agent does not take that order.

        ``only_left``: only if the monitor that held them is gone.
        """
        with contextlib.suppress(ControlError), contextlib.ExitStack() as undo:
            channel = undo.enter_context(open_channel(pid))
            if only_left and not (channel.knows(Command.HOLD) and channel.is_abandoned(Command.HOLD)):
                return False
            request = channel.order(Command.HOLD)
            undo.pop_all()
            with self._changing:
                self._held[pid] = request
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_heartbeats, name="tuimon hold", daemon=True)
                self._thread.start()
            return True
        return False

    def pids(self) -> set[int]:
        """The processes whose hooks are held."""
        with self._changing:
            return set(self._held)

    def send_heartbeat(self) -> None:
        """Show all agents that this process is alive; forget those that have withdrawn their hooks."""
        with self._changing:
            for pid, request in list(self._held.items()):
                request.poll()
                if request.is_over:
                    request.channel.close()
                    del self._held[pid]

    def close(self) -> None:
        """Send no more heartbeats: hooks that are still in place then withdraw by themselves."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._changing:
            for request in self._held.values():
                request.channel.close()
            self._held.clear()

    def _send_heartbeats(self) -> None:
        while not self._over.wait(1.0):  # between two heartbeats
            self.send_heartbeat()


class ControlError(TuimonError):
    """The agent in the training does not carry out an order."""


def open_channel(pid: int) -> Channel:
    """The channel to the agent in a live process. Raises ControlError."""
    try:
        return Channel(files.ring_path(pid))
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError) as error:
        if procfs.start_ticks(pid) is None:
            raise ControlError(f"there is no process {pid}", "List the running trainings: tuimon ps") from error
        raise ControlError(
            f"there is no agent of tuimon in process {pid}",
            "Start the training with tuimon run, or attach with --inject; one that has just started has an agent once "
            "it has imported torch",
        ) from error
    except (OSError, RingError) as error:
        raise ControlError(
            f"the agent in process {pid} takes no orders: {error}", "It may have been started by another tuimon"
        ) from error


def give_order(pid: int, command: Command, argument: int) -> Request:
    """Give an order to the agent in a process, over a channel of its own. Raises ControlError."""
    with contextlib.ExitStack() as undo:
        request = undo.enter_context(open_channel(pid)).order(command, argument)
        undo.pop_all()
        return request


class Channel(RingReader):
    """Gives orders to the agent of one ring, and reads that ring."""

    def __init__(self, path: str, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Raises RingError and OSError, as a RingReader, and if no order can be given."""
        super().__init__(path, writable=True)
        self._clock_ns = clock_ns
        words = self.words()
        if words[VERSION_WORD] != CONTROL_VERSION:
            self.close()
            raise RingError("it belongs to another version of tuimon")
        self._known = words[COMMANDS_WORD]

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def knows(self, command: Command) -> bool:
        return bool(self._known >> command & 1)

    def is_abandoned(self, command: Command) -> bool:
        """True if the agent still works on an order whose monitor is gone."""
        words = self.words()
        order, answer = order_in(words, command), answer_in(words, command)
        works = answer.number == order.number and answer.state == State.WORKING
        return works and not is_alive(order.alive_ns, self._clock_ns())

    def is_running(self) -> bool:
        """True if the process still runs."""
        return files.is_running(self.pid, self.start_ticks)

    def order(self, command: Command, argument: int = 1, instead_of: Request | None = None) -> Request:
        """Give an order. Raises ControlError, for example if another monitor has given the same order."""
        if not 0 <= argument < 1 << 64:
            raise ValueError(f"{argument} is not a valid argument of an order")
        if not self.knows(command):
            raise ControlError(f"the agent in process {self.pid} is of an older tuimon and cannot {WORK[command]}")
        if not self.try_lock(CONTROL_OFFSET, CONTROL_BYTES):
            raise ControlError(f"another tuimon is giving an order to process {self.pid}", "try again")
        try:
            return self._order(command, argument, instead_of)
        except OSError as error:
            raise ControlError(f"the ring of process {self.pid} cannot be written: {error}") from error
        finally:
            self.unlock(CONTROL_OFFSET, CONTROL_BYTES)

    def words(self) -> list[int]:
        """All control words; zeros if the file was cut short."""
        raw = self.bytes_at(CONTROL_OFFSET, CONTROL_BYTES).ljust(CONTROL_BYTES, b"\0")
        return array("Q", raw).tolist()

    def text(self, number: int) -> str:
        """The interned string with this id, made safe to show; empty for 0, or if there is none."""
        return plain(self.name(number)) if 0 < number <= 0xFFFF else ""

    def send_heartbeat(self, command: Command) -> None:
        """Show the agent that this monitor is alive. Raises OSError."""
        at = CONTROL_OFFSET + 8 * (slot_word(command) + Order._fields.index("alive_ns"))
        self.write(at, layout.U64.pack(self._clock_ns()))

    def _order(self, command: Command, argument: int, instead_of: Request | None) -> Request:
        words = self.words()
        latest, answer = order_in(words, command), answer_in(words, command)
        is_open = answer.number != latest.number or answer.state == State.WORKING
        is_ours = instead_of is not None and instead_of.number == latest.number
        is_wanted = is_whole(latest, command) and is_alive(latest.alive_ns, self._clock_ns())
        if argument and is_open and is_wanted and not is_ours:
            raise ControlError(f"another tuimon has ordered process {self.pid} to {WORK[command]}", "wait for its end")
        number = max(latest.number, answer.number) % (NUMBER_LIMIT - 1) + 1
        order = array("Q", (number, argument, check_of(command, number, argument), self._clock_ns()))
        self.write(CONTROL_OFFSET + 8 * slot_word(command), order.tobytes())
        bell = layout.U64.pack((words[BELL_WORD] + 1) % (1 << 64))
        self.write(CONTROL_OFFSET + 8 * BELL_WORD, bell)  # last: now the agent reads the order
        return Request(self, command, number)


class Request:
    """An order that was given: poll it at least twice a second, or the agent takes its monitor for dead."""

    def __init__(self, channel: Channel, command: Command, number: int) -> None:
        self.command = command
        self.answer: Answer | None = None  # the latest; None: the training has not taken the order yet
        self.channel = channel
        self.number = number
        self._moved_s = time.monotonic()  # when the answer changed last; at first, when the order was given
        self._lost = ""  # why there will be no answer

    @property
    def is_over(self) -> bool:
        """True if no other answer will come."""
        return bool(self._lost) or (self.answer is not None and self.answer.state not in (State.NONE, State.WORKING))

    @property
    def quiet_s(self) -> float:
        """Seconds since the agent's answer changed last."""
        return time.monotonic() - self._moved_s

    def poll(self) -> Answer | None:
        """Send a heartbeat, and read how far the agent has come; None until it has taken the order."""
        if self.is_over:
            return self.answer
        words = self.channel.words()
        answer = answer_in(words, self.command)
        is_torn = answer != answer_in(self.channel.words(), self.command)
        if answer.number == self.number and answer != self.answer and not is_torn:
            self.answer, self._moved_s = answer, time.monotonic()
        if not self.is_over:
            self._lost = self._go_on(order_in(words, self.command))
        return self.answer

    def cancel(self) -> None:
        """Take the order back; what it has begun is undone at the training's next step. Raises nothing."""
        if self.is_over:
            return
        self._lost = "the order was withdrawn"
        try:
            self.channel.order(self.command, 0)
        except ControlError:  # it ends when the heartbeat stops
            return

    def close(self) -> None:
        """Take the order back if it is not over, and close the ring."""
        self.cancel()
        self.channel.close()

    def wait(self, timeout_s: float = ANSWER_S) -> Answer:
        """The answer at the order's end; ``timeout_s`` is how long nothing may happen. Raises ControlError."""
        while not self.is_over:
            if self.quiet_s > timeout_s:
                raise self.no_answer()
            time.sleep(POLL_S)
            self.poll()
        return self.result()

    def result(self) -> Answer:
        """The answer to an order that was carried out. Raises ControlError."""
        answer, work, pid = self.answer, WORK[self.command], self.channel.pid
        if answer is None or self._lost:
            lost = self._lost or "it has not answered yet"
            raise ControlError(f"process {pid} did not {work}: {lost}", _TRY_WHILE_IT_RUNS)
        reason = self.channel.text(answer.text) or "no reason given"
        if answer.state == State.REFUSED:
            raise ControlError(
                f"process {pid} refuses to {work}: {reason}", "Nothing was changed; try again when that no longer holds"
            )
        if answer.state == State.STOPPED:
            why = "it ends, or had no heartbeat from this monitor"
            raise ControlError(f"process {pid} began to {work} but stopped early: {why}", _TRY_WHILE_IT_RUNS)
        if answer.state != State.DONE:
            raise ControlError(f"process {pid} failed to {work}: {reason}")
        return answer

    def no_answer(self) -> ControlError:
        """The error to raise, or show, when nothing has happened for too long."""
        pid, work = self.channel.pid, WORK[self.command]
        if self.answer is None:
            return ControlError(
                f"process {pid} has not begun to {work}: no backward pass has ended since the order",
                "it may be in set-up, in a long evaluation, or stuck; the request ends with this tuimon",
            )
        return ControlError(f"process {pid} has begun to {work} and has made no step since", "it may be stuck")

    def _go_on(self, order: Order) -> str:
        """Send a heartbeat; returns why there will be no answer, or an empty text."""
        if order.number != self.number:
            return "another tuimon has given the same order"
        if not self.channel.is_running():
            return "it has ended"
        try:
            self.channel.send_heartbeat(self.command)
        except OSError as error:
            return plain(str(error))
        return ""


def withdraw_hooks(pid: int, timeout_s: float = ANSWER_S) -> None:
    """Have the agent in a process undo all hooks, at its next backward pass. Raises ControlError."""
    with open_channel(pid) as channel:
        channel.order(Command.WITHDRAW).wait(timeout_s)
