"""A signal handler that raises at any bytecode of ours neither stops the markers nor lets a queue grow."""

import json
import os
import sys
import threading

import pytest

from tests.agent.gpu_clock.conftest import unlimited  # noqa: F401  # a fixture
from tests.agent.gpu_clock.fake_gpu import FakeGpu, FakeLoop
from tests.agent.interrupted import at_every_bytecode
from tests.agent.programs import ROOT, environment, printed_json, python
from tests.agent.ring.markers import emit_values, values
from tests.pythons import at_hand
from tuimon.agent.own_threads import Turn
from tuimon.agent.ring import writer as writing
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.ring.writer import RingWriter

pytestmark = pytest.mark.trust


@pytest.mark.parametrize("version", [*at_hand.VERSIONS, *at_hand.FREE_THREADED])
def test_at_every_bytecode(version):
    """Of the Python that the tests run in; at fewer of the others."""
    steps = ("1", "3") if version == f"{sys.version_info[0]}.{sys.version_info[1]}" else ("3", "11")
    program = os.path.join(os.path.dirname(__file__), "interrupted.py")
    done = python(program, *steps, env=environment(None, path=str(ROOT)), executable=at_hand.python(version))
    found = printed_json(done)
    assert {name: wrong for name, (_, wrong) in found.items() if wrong} == {}
    assert all(bytecodes > 100 for bytecodes, _ in found.values()), json.dumps(found)


@pytest.mark.parametrize("version", [*at_hand.VERSIONS, *at_hand.FREE_THREADED])
def test_at_every_instruction_that_looks_for_signals(version):
    """Which they are differs by version; a handler in C leaves no frame in a traceback."""
    program = os.path.join(os.path.dirname(__file__), "polled.py")
    done = python(program, "1500", env=environment(None, path=str(ROOT)), executable=at_hand.python(version))
    assert printed_json(done) == 1500


class Interruption(BaseException):
    """What the handler raises."""


def test_the_queue_is_bounded_and_what_it_loses_is_counted(tmp_path, monkeypatch):
    """Every writing is cut short at its begin: nothing is ever taken off the queue."""
    cut_short = [True]
    plain = RingWriter.make_write

    def made(self, slot_count, waiting):
        write_all = plain(self, slot_count, waiting)

        def interrupted():
            if cut_short:
                raise Interruption
            return write_all()

        return interrupted

    monkeypatch.setattr(RingWriter, "make_write", made)
    monkeypatch.setattr(writing, "WAITING_LIMIT", 1000)
    writer = RingWriter(str(tmp_path / "1-1.ring"), slot_count=16384)
    reader = RingReader(writer.path)
    reader.read()
    for value in range(1050):
        with pytest.raises(Interruption):
            writer.emit(2, value)
    cut_short.clear()
    emit_values(writer, [1050])
    seen = [value for _ in range(RingReader.HOLE_READS) for value in values(reader.read())]
    assert seen == list(range(51, 1051))
    assert reader.dropped == 51


def test_the_gpu_clock_goes_on(unlimited):  # noqa: F811
    """Interrupted at any third bytecode, it records events in the steps that follow."""
    loop = FakeLoop(FakeGpu())
    loop.steps(4)
    assert loop.step()

    def check():
        loop.steps(12)  # those that were recorded before are reported, and their events are free again
        timed = loop.step()
        return [] if timed and loop.clock.on else [f"{timed} boundaries timed"]

    bytecodes, wrong = at_every_bytecode(loop.step, check, step=3)
    assert wrong == [] and bytecodes > 500


def test_a_turn_is_one_threads_and_not_lost():
    entered, leave, answers = threading.Event(), threading.Event(), []

    def hold():
        call = turn.take()
        entered.set()
        leave.wait(30)
        return call  # never released

    turn = Turn(hold)
    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(30)
    answers.append(turn.take())
    assert turn.is_taken()
    leave.set()
    thread.join(30)
    assert answers == [None] and not turn.is_taken()
    assert turn.take() is not None
