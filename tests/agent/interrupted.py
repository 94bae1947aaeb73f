"""A program, of any Python that the agent supports: raises at every single bytecode of the agent, as a handler may.

Prints as JSON how many bytecodes each call had, and what was wrong after an interruption. Its arguments: of how many
bytecodes one is tried, and of how many in the making of a ring, which has 1,700.
"""

import json
import os
import shutil
import sys
import tempfile
import time

import tuimon.agent
from tuimon.agent import runtime
from tuimon.agent.control import orders
from tuimon.agent.outside import shielded
from tuimon.agent.ring import control_words, layout
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.ring.writer import RingWriter

AGENT = os.path.dirname(tuimon.agent.__file__)
SLOTS = 4096


class Interruption(Exception):
    """What the signal handler raises."""


def interrupted(number, call):
    """Make the call, and raise at the bytecode with this number; whether it had so many, and whether that was lost."""
    left, lost = number, True

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(AGENT):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise Interruption
        return trace

    sys._getframe().f_trace_opcodes = True  # Python 3.12 heeds it only from the next settrace on
    sys.settrace(trace)
    try:
        call()
    except Interruption:
        lost = False
    finally:
        sys.settrace(None)
    return left <= 0, lost


def at_every_bytecode(call, check, step=1):
    """How many bytecodes ``call`` has; ``check`` gives what is wrong after it was interrupted at one in ``step``."""
    number, wrong = 1, []
    while True:
        was_interrupted, lost = interrupted(number, call)
        if not was_interrupted:
            break
        wrong += [f"{found} (at bytecode {number})" for found in check() + ["lost"] * lost]
        number += step
    return number, wrong[:5]


class Ring:
    """A ring and its reader."""

    def __init__(self, writer):
        self.writer = writer
        self.reader = RingReader(writer.path)
        self.reader.read()
        self.value = 0

    def emit_some(self, count=6):
        for _ in range(count):
            self.writer.emit(layout.MARK, 7)

    def check(self):
        """Three more markers must arrive, the last of all, and nothing may be left waiting."""
        self.value += 10
        expected = [self.value + i for i in range(3)]
        for value in expected:
            self.writer.emit(layout.MARK, value)
        self.writer.flush()
        seen = [marker.value for _ in range(RingReader.HOLE_READS + 1) for marker in self.reader.read()]
        return [] if seen[-3:] == expected else [f"read {seen[-6:]}"]


def fresh_ring(folder):
    """A ring with a path of its own."""
    fresh_ring.number = getattr(fresh_ring, "number", 0) + 1
    return Ring(RingWriter(os.path.join(folder, f"{fresh_ring.number}-1.ring"), slot_count=SLOTS))


def names(ring):
    """Interning, and what must hold after it was cut short."""
    given = {}

    def intern():
        ring.writer.name_id(f"name {len(given)}")

    def check():
        name = f"name {len(given)}"
        given[name] = ring.writer.name_id(name)
        return [] if ring.reader.name(given[name]) == name else [f"{name} is {given[name]}"]

    return intern, check


def first_markers():
    """The making of a ring at the first marker of a process, cut short."""

    def unopened():
        runtime.stop()
        shutil.rmtree(os.environ["TUIMON_RING_DIR"], ignore_errors=True)  # with files whose making was cut short
        runtime.on = True
        runtime.open_at_first_marker()

    def begin():
        runtime.emit(layout.BACKWARD_BEGIN, 1)

    def check():
        runtime.emit(layout.BACKWARD_BEGIN, 2)
        ring = runtime.writer()
        wrong = ["no ring"]
        if ring is not None:
            reader = RingReader(ring.path)
            reader.read()
            wrong = Ring.check(_Followed(ring, reader))
            reader.close()
        if orders.orders.words is None or orders.orders.bell[0] != ring.control_words()[control_words.BELL_WORD]:
            wrong.append("no orders are taken")
        unopened()
        return wrong

    unopened()
    return begin, check


def callbacks():
    """A callback of Python's own, cut short: the exception arrives after it, and the next call is made."""
    made = []
    call = shielded(made.append)

    def check():
        count = len(made)
        call(1, 2)
        return [] if len(made) == count + 2 else ["not called any more"]

    def calls():
        for _ in range(8):
            call(1, 2)
        for _ in range(20):  # here the interpreter notices what is pending
            os.getpid()

    return calls, check


class _Echo(orders.Work):
    """A command of some steps."""

    def __init__(self, task):
        self.task = task
        task.needs_steps = True

    def step(self):
        self.task.finish(self.task.argument)


def orders_given(ring):
    """An order that is taken and carried out, cut short: the next one must be answered."""
    words, number = ring.writer.control_words(), [0]
    orders.begin_of = lambda command: _Echo
    orders.forget()
    orders.listen(ring.writer)

    def give():
        number[0] += 1
        at = control_words.slot_word(control_words.Command.SAMPLE)
        check = control_words.check_of(control_words.Command.SAMPLE, number[0], 3)
        for ahead, word in enumerate((number[0], 3, check, time.monotonic_ns())):
            words[at + ahead] = word
        words[control_words.BELL_WORD] = number[0]

    def step():
        if orders.orders.bell[0] != orders.orders.heard:
            orders.attend()

    def steps():
        give()
        step()
        step()

    def check():
        give()
        for _ in range(3):
            step()
        answer = control_words.answer_in(words, control_words.Command.SAMPLE)
        done = answer.number == number[0] and answer.state == control_words.State.DONE
        return [] if done and orders.orders.bell[0] == orders.orders.heard else [f"{answer} to {number[0]}"]

    return steps, check


class _Followed(Ring):
    def __init__(self, writer, reader):
        self.writer, self.reader, self.value = writer, reader, 0


def main():
    """All calls."""
    found = {}
    step, step_in_making = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TUIMON_RING_DIR"] = os.path.join(folder, "rings")
        found["callback"] = at_every_bytecode(*callbacks(), step)
        ring = fresh_ring(folder)
        found["emit"] = at_every_bytecode(ring.emit_some, ring.check, step)
        found["flush"] = at_every_bytecode(lambda: (ring.emit_some(5), ring.writer.flush()), ring.check, step)
        found["name_id"] = at_every_bytecode(*names(ring), step)
        found["orders"] = at_every_bytecode(*orders_given(ring), step)
        orders.forget()
        found["first marker"] = at_every_bytecode(*first_markers(), step_in_making)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
