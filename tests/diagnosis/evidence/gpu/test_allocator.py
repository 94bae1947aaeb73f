"""An allocator that gives memory back to the driver in every step."""

import pytest
from msgspec import structs

from tests.diagnosis.gpu import END_S, LINES, PID, USUAL, findings
from tests.session.records import frames, stacks
from tuimon.records import Frames, TorchMemory

EMPTYING = len(LINES.frames)
EMPTY_LINES = frames(
    ("/home/me/train.py", 48, "main", "torch.cuda.empty_cache()", True),
    ("/lib/site-packages/torch/cuda/memory.py", 170, "empty_cache"),
    first=EMPTYING,
)


def memory(t, frees, allocated=3 << 30):
    return TorchMemory(t=t, pid=PID, device=0, allocated_bytes=allocated, reserved_bytes=allocated, device_frees=frees)


def launches(*counted, more=()):
    found = findings("launch_bound", *USUAL, *counted, util=0.4, more=more)
    return found["launch_bound"]


@pytest.mark.parametrize(("frees", "cause"), [(0, None), (5, None), (100_000, "allocator")])
def test_frees_in_every_step_are_the_cause(frees, cause):
    finding = launches(more=[memory(END_S - 6, 7), memory(END_S, 7 + frees)])
    assert finding.cause == cause
    assert ("expandable_segments" in finding.action) == (cause is not None)
    assert ("torch.compile(model" in finding.action) == (cause is None)
    assert ("device_frees_per_step" in finding.evidence) == (cause is not None)


def test_frees_that_are_not_counted_are_no_cause():
    assert launches(more=[memory(END_S - 6, None), memory(END_S, None)]).cause is None


def test_a_line_that_empties_the_cache_is_named():
    lines = Frames(t=END_S, pid=PID, first=EMPTYING, frames=EMPTY_LINES.frames)
    finding = launches(more=[lines, stacks(END_S, *USUAL, ([EMPTYING, EMPTYING + 1], 40), pid=PID)])
    assert (finding.cause, finding.where[0].line) == ("allocator", 48)
    assert finding.action.startswith("leave out torch.cuda.empty_cache() at ")
    assert structs.asdict(lines)["first"] == EMPTYING
