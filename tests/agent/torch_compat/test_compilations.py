"""What Dynamo notes of its compilations, as events and as the texts of markers."""

import types

import pytest

from tests.agent.programs import ROOT, environment, printed_json
from tests.warm_torch import warm_python
from tuimon.agent.ring.layout import Event, unpacked
from tuimon.agent.torch_compat import compilations
from tuimon.agent.torch_compat.compilations import new_events

CODE = ("/me/model.py", 7, "forward")


@pytest.fixture(autouse=True)
def anew():
    compilations.reading.begin(None)
    yield
    compilations.reading.begin(None)


def compiled(number, reason=None, **noted):
    """One entry of Dynamo's compilations."""
    entry = {"compile_id": f"0/{number}", "co_name": "forward", "co_filename": "/me/model.py", "co_firstlineno": 7}
    entry |= {"recompile_reason": reason, "fail_reason": None, "duration_us": 1500, "cache_size": number}
    return types.SimpleNamespace(**entry | noted)


def utils(*entries, unimplemented=(), skips=0, breaks=()):
    counters = {"unimplemented": dict(unimplemented), "inductor": {"cudagraph_skips": skips}}
    return types.SimpleNamespace(_compilation_metrics=entries, counters=counters, graph_break_reasons=list(breaks))


def test_each_compilation_is_told_once_and_a_later_one_with_its_guard():
    first = compiled(0)
    assert new_events(utils(first)) == [Event("compiled", 1_500_000, CODE)]
    assert new_events(utils(first)) == []
    again = compiled(1, "0/0: L['length'] == 7   # return x * length  # me/model.py:9 in forward")
    assert new_events(utils(first, again)) == [
        Event("recompiled", 1_500_000, CODE, "L['length'] == N", "me/model.py:9"),
    ]


def test_an_entry_without_a_name_is_of_a_backward_pass_of_what_was_compiled():
    backward = compiled(0, co_name=None)
    assert new_events(utils(compiled(0), backward))[1] == Event("backward", 1_500_000, CODE)


def test_sizes_that_differ_each_time_are_one_guard():
    sizes = (f"tensor 'x' size mismatch at index 1. expected 7, actual {length}" for length in (9, 11))
    reasons = {event.reason for event in new_events(utils(*(compiled(1, size) for size in sizes)))}
    assert reasons == {"tensor 'x' size mismatch at index 1"}


def test_a_function_that_torch_gives_up_is_told_with_the_guard_that_failed_last():
    given_up = utils(compiled(1, "0/0: L['n'] == 1"), unimplemented={"recompile limit exceeded": 2})
    assert new_events(given_up)[1:] == [Event("limit", 2, CODE, "L['n'] == N")]
    assert new_events(given_up) == []


def test_a_graph_breaks_at_the_users_line_for_the_reason_that_torch_explains():
    stack = [
        types.SimpleNamespace(filename="/me/model.py", lineno=12, name="forward"),
        types.SimpleNamespace(filename="/v/site-packages/lib/log.py", lineno=3, name="write"),
    ]
    reason = "Failed to trace\n  Explanation: Dynamo cannot trace print\n  Hint: remove it"
    broken = utils(breaks=[types.SimpleNamespace(user_stack=stack, reason=reason)])
    assert new_events(broken) == [Event("graph_break", 1, ("/me/model.py", 12, "forward"), "Dynamo cannot trace print")]


def test_a_torch_that_notes_nothing_has_no_events():
    assert new_events(types.SimpleNamespace()) == []


def test_a_text_is_read_as_it_was_written_and_too_many_lose_their_reasons():
    event = Event("recompiled", 5, CODE, "L['n'] == N", "model.py:9")
    assert unpacked(compilations.text_of(event)) == event._replace(value=0)
    texts = {compilations.text_of(event._replace(reason=f"guard {number}")) for number in range(500)}
    assert len(texts) <= compilations.TEXTS_LIMIT + 2
    assert unpacked("damaged") is None


PROGRAM = """
import json, sys, torch
import _tuimon_agent.torch_compat.compilations as compilations

def scaled(x, factor):
    y = x * factor
    print(end="")
    return y + 1

torch._dynamo.config.recompile_limit = 100
compiled = torch.compile(scaled, backend="eager", dynamic=False)
for factor in range(2, 6):
    compiled(torch.ones(3), float(factor))
events = compilations.new_events(sys.modules["torch._dynamo.utils"])
print(json.dumps([[event.what, event.code[1:], event.reason, event.value > 0] for event in events]))
"""


@pytest.mark.torch
def test_what_torch_itself_notes(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "scaled.py"
    script.write_text(PROGRAM)
    found = printed_json(warm_python(str(script), env=environment(tmp_path / "rings", path=str(ROOT))))
    assert ["compiled", [5, "scaled"], "", True] in found
    again = [event for event in found if event[0] == "recompiled" and event[1] == [5, "scaled"]]
    assert len(again) == 3 and all("factor" in event[2] and event[3] for event in again)
    assert [event[1] for event in found if event[0] == "graph_break"][:1] == [[7, "scaled"]]
