"""Takes the monitor's orders from the ring's header, at the end of a backward pass.

If a signal handler raises meanwhile, no order is lost: the interrupted work is done again at the next backward pass.
Only the command that was being carried out fails.
"""

import importlib
import sys
import time
from typing import Any, Callable, Dict, Optional

from .. import runtime
from ..outside import is_programs, undisturbed, variable
from ..own_threads import Turn
from ..pace import pace
from ..ring import control_words
from ..ring.control_words import Command, State

#: All commands that are known, and the same as bits.
KNOWN = tuple(Command)
_NAMES = {command: command.name.lower() for command in KNOWN}
KNOWN_BITS = sum(1 << number for number in KNOWN)
#: A value that no bell has: with it, the next hook takes orders again.
_NEVER = -1
_NO_BELL = (0,)
#: Time between two checks of a monitor's heartbeat; each check is at the end of a backward pass.
_CHECK_NS = 1_000_000_000


class Work:
    """The work that a command has begun for a task (see the package)."""

    def step(self) -> None:
        """A backward pass has ended, and the task ``needs_steps``."""

    def end(self) -> None:
        """Undo the work: the task ends before it is done."""


class Task:
    """An order that a command carries out. Its answers go into the ring; it belongs to the thread that reports."""

    def __init__(self, words: Any, name_id: Callable[[str], int], command: Command, number: int, argument: int) -> None:
        """``words``: the control words of this process's ring; ``name_id`` interns a string there."""
        self._words = words
        self._name_id = name_id
        self.command = command
        self.number = number
        self.argument = argument
        self.value = 0
        self.work = Work()  # the work that its command has begun
        self.needs_steps = False  # True if ``work.step`` is called, and no step may fall into a gap
        self.is_over = False
        self.is_held = False  # it goes on until its monitor has long been gone; only the hold checks that

    def is_wanted(self) -> bool:
        """True if its monitor is alive and still wants the order carried out."""
        order = control_words.order_in(self._words, self.command)
        return order.number == self.number and control_words.is_alive(order.alive_ns, time.monotonic_ns())

    def report(self, value: int) -> None:
        """Report how much has been done, in the command's own unit."""
        self.value = value
        self._answer(State.WORKING, "")

    def finish(self, value: int, text: str = "") -> None:
        self.value = value
        self._end(State.DONE, text)

    def refuse(self, reason: str) -> None:
        """Report that the order cannot be carried out here, for the reason given; nothing was changed."""
        self._end(State.REFUSED, reason)

    def fail(self, reason: str) -> None:
        self._end(State.FAILED, reason)

    def stop(self) -> None:
        """Report that the order was stopped, because it is no longer wanted."""
        self._end(State.STOPPED, "")

    def _end(self, state: State, text: str) -> None:
        if not self.is_over:
            self.is_over = True
            self._answer(state, text)

    def _answer(self, state: State, text: str) -> None:
        words, at = self._words, control_words.slot_word(self.command) + control_words.ANSWER_WORD
        words[at + 3] = self._name_id(text) if text else 0
        words[at + 2] = min(max(0, self.value), (1 << 63) - 1)
        words[at + 1] = int(state)
        words[at] = self.number  # last: from here on the answer belongs to this order


class Orders:
    """The bell of this process's ring, and its value when orders were last taken: hooks compare the two."""

    __slots__ = ("bell", "check_ns", "heard", "held", "name_id", "rung", "taken", "tasks", "watch_memory", "words")

    def __init__(self) -> None:
        self.bell: Any = _NO_BELL
        self.heard = 0
        self.held = False  # the only open task is a monitor's hold on the hooks
        self.check_ns = 0  # when the monitor's heartbeat is checked next, for the hold
        self.rung = 0  # the bell at which orders were last read
        self.words: Any = None
        self.name_id: Any = None
        self.taken: Dict[Command, int] = {}  # command -> number of its latest order
        self.tasks: Dict[Command, Task] = {}  # command -> task that is not over
        self.watch_memory = False  # watch out-of-memory errors from the next backward pass on


orders = Orders()


def listen(writer: Any) -> None:
    """Take orders from this ring from now on."""
    words = writer.control_words()
    if orders.words is not None and orders.words.obj is words.obj and orders.bell is not _NO_BELL:
        return
    orders.words = words
    orders.name_id = writer.name_id
    orders.taken = {}
    orders.tasks = {}
    words[control_words.COMMANDS_WORD] = KNOWN_BITS
    words[control_words.VERSION_WORD] = control_words.CONTROL_VERSION  # last: from now on orders are taken
    orders.watch_memory = variable("TUIMON_MEMORY") == "1"
    orders.rung = 0
    orders.heard = _NEVER if orders.watch_memory else 0
    orders.bell = words[control_words.BELL_WORD : control_words.BELL_WORD + 1]


def forget() -> None:
    """Take no more orders: there is no ring, or, in a forked child, the ring is the parent's."""
    orders.bell = _NO_BELL
    orders.heard = orders.rung = 0
    orders.held = pace.held = False
    orders.words = orders.name_id = None
    orders.tasks = {}


def end_tasks() -> None:
    for command, task in list(orders.tasks.items()):
        _stop(command, task)


def close() -> None:
    """End all tasks, as the hooks are being withdrawn or the process ends, and take no more orders."""
    end_tasks()
    forget()


def attend() -> None:
    """Take new orders and go on with those that need every step; call at the end of a backward pass."""
    if orders.held and orders.bell[0] == orders.rung:
        now_ns = time.monotonic_ns()
        if now_ns < orders.check_ns:
            return
        orders.check_ns = now_ns + _CHECK_NS
    turn = _attending.take()
    if turn is None:  # another thread is taking orders
        return
    try:
        _attend()
    finally:
        _attending.release(turn)


_attending = Turn(attend)


def call_again(task: Task) -> None:
    """Have the task's work called at the next backward pass, and at those after it while it ``needs_steps``."""
    task.needs_steps = True
    orders.held = False
    orders.heard = _NEVER


def _attend() -> None:
    if orders.watch_memory:
        orders.watch_memory = False  # enabled by the environment, not by an order
        try:
            _imported("memory").watch_errors()
        except Exception as error:  # a torch with other names for it
            if is_programs(error):
                raise
    if not _go_on():
        return
    bell = orders.bell[0]
    if bell != orders.rung:
        for command in KNOWN:
            if orders.words is not None:  # else an order has withdrawn the hooks
                _take(command)
        orders.rung = bell  # last: work that an exception cuts short is done again
    if orders.words is None:
        forget()  # ``rung`` as well: the next ring's bell begins at 0
        return
    needs_steps = held = False
    for task in list(orders.tasks.values()):  # a generator that is interrupted swallows the exception
        needs_steps |= task.needs_steps and not task.is_over
        held |= task.is_held
    orders.held = held and not needs_steps
    orders.heard = _NEVER if needs_steps or held else bell
    pace.held = needs_steps


def _go_on() -> bool:
    """Go on with the open tasks; False if one of them has withdrawn the hooks."""
    for command, task in list(orders.tasks.items()):
        if task.is_over:
            orders.tasks.pop(command, None)
        elif task.is_held:
            order = control_words.order_in(orders.words, command)
            alive = control_words.is_alive(order.alive_ns, time.monotonic_ns(), control_words.ABANDONED_NS)
            if order.number == task.number and not alive:
                task.stop()
                runtime.withdraw()
                return False
        elif not task.is_wanted():
            _stop(command, task)
        elif task.needs_steps:
            _call(task, task.work.step)
    return True


def _take(command: Command) -> None:
    """Begin the order in a command's slot, if it is new, completely written, and its monitor is alive."""
    order = control_words.order_in(orders.words, command)
    if order.number == orders.taken.get(command, 0) or not control_words.is_whole(order, command):
        return
    orders.taken[command] = order.number
    earlier = orders.tasks.get(command)
    if earlier is not None:
        _stop(command, earlier)
    task = Task(orders.words, orders.name_id, command, order.number, order.argument)
    if not control_words.is_alive(order.alive_ns, time.monotonic_ns()):
        task.stop()
    elif order.argument == 0:
        task.finish(0)
    else:
        orders.tasks[command] = task
        task.report(0)
        _call(task, lambda: _begin(task))


def _stop(command: Command, task: Task) -> None:
    orders.tasks.pop(command, None)
    if not task.is_over:
        _call(task, task.work.end)
        task.stop()


def _begin(task: Task) -> None:
    task.work = begin_of(task.command)(task) or task.work


def _call(task: Task, function: Callable[[], None]) -> None:
    """Call a function of the task's command; an exception becomes the answer."""
    try:
        function()
    except BaseException as error:
        if is_programs(error):
            task.fail("it was interrupted")
            raise
        task.fail("%s: %s" % (type(error).__name__, error))
    if task.is_over:
        orders.tasks.pop(task.command, None)


def _hold(task: Task) -> None:
    """Hold the hooks for a monitor: when it disappears, they are undone as if it had withdrawn them.

    Only hooks that a monitor has brought in are held; those of ``tuimon run`` are the run's own.
    """
    task.is_held = True


def _withdraw(task: Task) -> None:
    """Undo all hooks: from here on the training runs as if tuimon had never been there, and has no ring.

    The answer is in the ring's file, which has no name any more.
    """
    orders.tasks.pop(task.command, None)  # the withdrawal itself goes on
    runtime.withdraw()
    task.finish(0)


#: The commands that have no module of their own.
_HERE: Dict[Command, Callable[[Task], None]] = {Command.HOLD: _hold, Command.WITHDRAW: _withdraw}


def begin_of(command: Command) -> Callable[[Task], Optional[Work]]:
    """The function that begins to carry out a command: of a module of this folder, imported on first use, or here."""
    return _HERE.get(command) or _imported(_NAMES[command]).begin


def _imported(name: str) -> Any:
    full = "%s.%s" % (__package__, name)
    if full not in sys.modules:
        undisturbed(lambda: importlib.import_module(full))
    return importlib.import_module(full)


runtime.listen = listen
runtime.in_child.append(forget)
runtime.end_orders = close
