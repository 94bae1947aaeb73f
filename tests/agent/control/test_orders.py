"""Orders of a monitor and what becomes of them in the training."""

import os
import random
import time

import pytest

from tests.agent.programs import as_agents
from tuimon.agent.control import orders
from tuimon.agent.pace import pace
from tuimon.agent.ring import control_words, layout
from tuimon.agent.ring.control_words import Command, State
from tuimon.agent.ring.reader import RingError
from tuimon.sources.control_channel import Channel, ControlError


def test_an_order_is_taken_at_the_next_step_and_answered(channel, step, command):
    assert not step()
    request = channel.order(Command.TRACE, 5)
    assert request.poll() is None
    assert step()
    assert command.calls == [("begin", 5)] and request.poll().state == State.WORKING
    command.step_with = lambda task: task.report(task.value + 1) if task.value < 4 else task.finish(5, "done so")
    while not request.is_over:
        assert step()
        request.poll()
    assert command.calls == [("begin", 5)] + [("step", 5)] * 5
    answer = request.result()
    assert (answer.state, answer.value, channel.text(answer.text)) == (State.DONE, 5, "done so")
    assert not step()  # from now on nothing but a look at the bell


def test_a_command_that_needs_no_steps_is_left_alone_at_them(channel, step, command):
    command.needs_steps = False
    channel.order(Command.SAMPLE, 10)
    assert step() and not step()
    assert command.calls == [("begin", 10)]


def test_two_commands_at_a_time(channel, step, command):
    first, second = channel.order(Command.SAMPLE, 10), channel.order(Command.TRACE, 2)
    step()
    assert command.calls == [("begin", 10), ("begin", 2)]
    first.cancel()
    step()
    assert ("end", 10) in command.calls and ("end", 2) not in command.calls
    assert second.poll().state == State.WORKING


def test_what_was_taken_back_has_brought_nothing(channel):
    request = channel.order(Command.MEMORY, 5)
    request.cancel()
    with pytest.raises(
        ControlError, match=r"^process \d+ did not record the allocator's history: the order was withdrawn$"
    ) as lost:
        request.result()
    assert lost.value.hint == "Try again while the training runs, for less if it ends soon"


def test_a_refusal_has_its_reason(channel, step, command):
    command.begin_with = lambda task: task.refuse("a profiler is on: \x1b[2J")
    request = channel.order(Command.TRACE, 5)
    step()
    request.poll()
    with pytest.raises(ControlError, match="refuses to trace its steps: a profiler is on") as refused:
        request.result()
    assert "\x1b" not in refused.value.message
    assert refused.value.hint == "Nothing was changed; try again when that no longer holds"
    assert not step()


@pytest.mark.parametrize("place", ["begin_with", "step_with"])
def test_what_a_command_raises_is_its_answer(channel, step, command, place):
    def broken(task):
        raise ValueError("no")

    setattr(command, place, as_agents(broken))
    request = channel.order(Command.MEMORY, 5)
    step()
    step()
    request.poll()
    with pytest.raises(ControlError, match=r"failed to .*ValueError: no"):
        request.result()


def test_a_monitor_that_is_gone_is_worked_for_no_longer(channel, step, command, clock):
    request = channel.order(Command.TRACE, 5)
    step()
    clock.behind_ns = control_words.GONE_NS
    request.poll()  # its heartbeat is old by now
    step()
    assert command.calls == [("begin", 5), ("end", 5)]
    request.poll()
    with pytest.raises(ControlError, match="no heartbeat") as gone:
        request.result()
    assert gone.value.hint


def test_an_order_whose_monitor_died_before_the_step_is_never_begun(channel, step, command, clock):
    clock.behind_ns = control_words.GONE_NS
    request = channel.order(Command.WITHDRAW)
    step()
    assert command.calls == [] and request.poll().state == State.STOPPED


def test_one_monitor_at_a_time(channel, step, command, writer, clock):
    with Channel(writer.path, clock_ns=time.monotonic_ns) as other:
        request = channel.order(Command.TRACE, 5)
        with pytest.raises(ControlError, match="another tuimon has ordered"):
            other.order(Command.TRACE, 6)
        step()
        with pytest.raises(ControlError, match="another tuimon"):
            other.order(Command.TRACE, 6)
        other.order(Command.SAMPLE, 1)
        clock.behind_ns = control_words.GONE_NS
        request.poll()
        after = other.order(Command.TRACE, 6)  # the first monitor is gone
        step()
        request.poll()
        with pytest.raises(ControlError, match="another tuimon"):
            request.result()
        assert after.poll().state == State.WORKING
        assert command.calls == [("begin", 5), ("end", 5), ("begin", 1), ("begin", 6)]


def test_a_training_that_makes_no_step_gives_no_answer(channel):
    with pytest.raises(ControlError, match="no backward pass has ended"):
        channel.order(Command.TRACE, 5).wait(timeout_s=0.0)


def test_an_unknown_command_is_not_even_sent(channel, writer):
    writer.control_words()[1] = 0
    with Channel(writer.path) as other, pytest.raises(ControlError, match="cannot trace its steps"):
        other.order(Command.TRACE, 5)


def test_a_ring_that_is_open_to_others_is_not_written(writer, command):
    orders.listen(writer)
    os.chmod(writer.path, 0o660)
    with pytest.raises(RingError, match="open to other users"):
        Channel(writer.path)
    orders.forget()


def test_no_order_makes_a_ring_that_was_cut_short_longer(channel, writer):
    os.truncate(writer.path, layout.META_OFFSET)
    with pytest.raises(ControlError, match="cut short"):
        channel.order(Command.TRACE, 5)
    assert os.path.getsize(writer.path) == layout.META_OFFSET


def test_words_that_no_monitor_has_written_begin_nothing(channel, step, command, writer):
    words, rng = writer.control_words(), random.Random(7)
    values = (0, 1, 5, 2**53, 2**63, 2**64 - 1)
    for _ in range(2000):
        for _ in range(rng.randint(1, 8)):
            words[rng.randrange(control_words.FIRST_SLOT_WORD, control_words.CONTROL_WORDS)] = rng.choice(
                (*values, rng.getrandbits(64))
            )
        words[control_words.BELL_WORD] = rng.getrandbits(64)
        step()
        request = channel.order(rng.choice(list(Command)), 0)
        request.poll()
        channel.text(rng.getrandbits(17))
    assert command.calls == []


def test_a_half_written_order_is_taken_once_it_is_whole(channel, step, command, writer):
    words = writer.control_words()
    channel.order(Command.TRACE, 5)
    at = control_words.slot_word(Command.TRACE) + 1
    words[at] = 77  # the argument of another order
    assert step() and command.calls == []
    words[at] = 5
    words[control_words.BELL_WORD] += 1
    step()
    assert command.calls == [("begin", 5)]


def test_while_steps_are_needed_all_are_timed(channel, step, command):
    request = channel.order(Command.TRACE, 5)
    step()
    assert pace.held
    request.cancel()
    step()
    assert not pace.held


def test_the_end_of_the_process_ends_what_was_begun(channel, step, command):
    request = channel.order(Command.TRACE, 5)
    step()
    orders.close()
    assert command.calls[-1] == ("end", 5) and request.poll().state == State.STOPPED


def test_a_forked_child_is_not_asked(channel, step, command):
    channel.order(Command.TRACE, 5)
    orders.forget()  # what a child does
    assert orders.orders.bell[0] == orders.orders.heard
    assert not step() and command.calls == []


def test_orders_lie_where_nothing_else_is():
    assert layout.CLOSED_OFFSET + 8 <= control_words.CONTROL_OFFSET
    assert control_words.CONTROL_OFFSET + 8 * control_words.CONTROL_WORDS <= layout.META_OFFSET
