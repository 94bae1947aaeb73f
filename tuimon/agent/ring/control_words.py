"""The control words of a ring: the monitor's orders, and the agent's answers.

They lie in the free part of the ring's header. Offsets in bytes::

    1024  version u64    of these words; 0: this agent takes no orders
    1032  commands u64   bit n: the agent knows command n
    1040  bell u64       the monitor changes it after every order; the agent reads this word alone once a step
    1088  for each of 16 commands:
          order   number u64 | argument u64 | check u64 | alive_ns u64   written by the monitor
          answer  number u64 | state u64 | value u64 | text u64          written by the agent

An order's number differs from that of the order before it. Its argument is a number, 0 to end what an earlier order
began. ``alive_ns`` is the monitor's heartbeat (monotonic clock). An answer's ``text`` is the id of an interned string.
No word names a file or code. A ring's file is open to its own user alone, and so are its words.
"""

from enum import IntEnum
from typing import NamedTuple, Sequence

CONTROL_OFFSET = 1024
CONTROL_VERSION = 1
#: Index of the first word of each part, in words of 8 bytes from CONTROL_OFFSET on.
VERSION_WORD, COMMANDS_WORD, BELL_WORD, FIRST_SLOT_WORD = 0, 1, 2, 8
COMMAND_SLOT_WORDS, ANSWER_WORD = 8, 4
COMMAND_SLOTS = 16
CONTROL_WORDS = FIRST_SLOT_WORD + COMMAND_SLOTS * COMMAND_SLOT_WORDS
CONTROL_BYTES = 8 * CONTROL_WORDS
#: A monitor writes its heartbeat at least twice a second while its order is not over. One that has written none for so
#: long is gone: it was killed, stopped, or its machine slept (ns).
GONE_NS = 5_000_000_000
#: Hooks are withdrawn when the monitor that holds them has been gone for this long: one that is stopped for a moment,
#: or swapped out, finds them there (ns).
ABANDONED_NS = 30_000_000_000

_MASK = (1 << 64) - 1
#: Numbers of orders stay below this.
NUMBER_LIMIT = 1 << 53

#: Parts of the argument of a trace: steps in the low 32 bits, from bit 32 on the ms that it may hold the training up.
TRACE_HELD_BIT, TRACE_HELD_MASK = 32, 0xFFFF
#: Most steps of one trace.
TRACE_STEPS_LIMIT = 1000


class Command(IntEnum):
    """The orders that the agent can carry out; the number of its slot."""

    SAMPLE = 0  # sample stacks inside the process; argument: times a second
    TRACE = 1  # trace whole steps with torch.profiler; argument: how many
    MEMORY = 2  # record the allocator's history; argument: for how many steps
    WITHDRAW = 3  # undo all hooks
    HOLD = 4  # undo all hooks once the monitor is gone; argument 0: they stay
    COLLECTIVES = 5  # count the collectives that torch has recorded; argument: of how many steps
    CALLS = 6  # count the calls that read or move tensors; argument: how many updates a step has


class State(IntEnum):
    """The state of an order."""

    NONE = 0
    WORKING = 1
    DONE = 2
    REFUSED = 3  # it cannot be done here: ``text`` says why
    FAILED = 4  # it was begun and went wrong: ``text`` says how
    STOPPED = 5  # the monitor is gone, another order has replaced it, or the process ends


class Order(NamedTuple):
    """An order of the monitor."""

    number: int
    argument: int
    check: int
    alive_ns: int


class Answer(NamedTuple):
    """The agent's answer to the order with the same number; ``value`` is the command's own count."""

    number: int
    state: int
    value: int
    text: int


def slot_word(command: int) -> int:
    """Index of the first word of a command's order; its answer is ANSWER_WORD further on."""
    return FIRST_SLOT_WORD + command * COMMAND_SLOT_WORDS


def check_of(command: int, number: int, argument: int) -> int:
    """The check word of an order: an order that is half written, or damaged, has another."""
    return (number * 0x9E3779B97F4A7C15 ^ argument * 0xC2B2AE3D27D4EB4F ^ (command + 1) * 0x165667B19E3779F9) & _MASK


def is_alive(alive_ns: int, now_ns: int, gone_ns: int = 0) -> bool:
    """True if a heartbeat is recent, of the last 5 s or of ``gone_ns``; one from the future is damaged."""
    gone_ns = gone_ns or GONE_NS
    return -gone_ns < now_ns - alive_ns < gone_ns


def order_in(words: Sequence[int], command: int) -> Order:
    at = slot_word(command)
    return Order(*words[at : at + ANSWER_WORD])


def answer_in(words: Sequence[int], command: int) -> Answer:
    at = slot_word(command) + ANSWER_WORD
    return Answer(*words[at : at + ANSWER_WORD])


def is_whole(order: Order, command: int) -> bool:
    """True if an order is one that a monitor has written."""
    return 0 < order.number < NUMBER_LIMIT and order.check == check_of(command, order.number, order.argument)
