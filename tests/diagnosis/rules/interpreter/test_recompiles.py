"""A model that is compiled anew, on literal sessions."""

import pytest

from tests.diagnosis.cpu import NO_GPU
from tests.session.records import by_rule, frames, loop, one_process, stacks, steps
from tuimon.diagnosis.judging import diagnose
from tuimon.records import Compiler, CompilerEvents, Steps

TORCH = "/v/lib/python3.11/site-packages/torch"
STACKS = frames(
    ("train.py", 28, "main", "loss = net(x, length)", True),
    (f"{TORCH}/nn/modules/module.py", 99, "_call_impl"),
    (f"{TORCH}/_dynamo/convert_frame.py", 1700, "_compile"),
    (f"{TORCH}/_subclasses/fake_tensor.py", 3174, "validate"),
    (f"{TORCH}/_functorch/_aot_autograd/runtime_wrappers.py", 561, "runtime_wrapper"),
    ("train.py", 30, "main", "loss.backward()", True),
    (f"{TORCH}/autograd/graph.py", 9, "_engine_run_backward"),
    (f"{TORCH}/optim/sgd.py", 9, "step"),
)
#: Ids of frames: in the compiler, where compiled code runs, in backward, in the update.
COMPILES, RUNS, BACKWARD, UPDATE = [0, 1, 2, 3], [0, 1, 4], [5, 6], [5, 7]
MS = 1_000_000


PHASES = {"forward": 70, "backward": 30}


def judged(*records):
    """By rule; the samples of a second come before its steps."""
    ordered = sorted(records, key=lambda record: (record.t, isinstance(record, Steps)))
    return by_rule(one_process(NO_GPU, STACKS, *ordered))


def found(compiling, *records, **in_steps):
    """By rule; so many of ten samples a second are in the compiler."""
    sampled = (COMPILES, compiling), (RUNS, 7 - compiling), (BACKWARD, 3)
    return judged(*loop(11, PHASES, **in_steps), *(stacks(t, *sampled) for t in range(1, 12)), *records)


def test_a_model_that_is_compiled_in_each_step():
    finding = found(6)["recompiles"]
    assert (finding.severity, finding.where[0].line) == ("critical", 28)
    assert finding.share_of_step == pytest.approx(0.6)
    assert len(finding.fixes) == 1
    assert finding.estimated_speedup >= 1 / 0.4
    assert "compute_bound_cpu" not in found(6)


def test_a_compiled_model_that_runs_is_in_order():
    assert found(0).keys() == {"compute_bound_cpu"}


@pytest.mark.parametrize(("again_s", "expected"), [(None, False), (45, True)])
def test_the_first_compilation_does_not_count(again_s, expected):
    """It takes the first step 5 s; compiling anew for a second in ten, long after that, does count."""
    first = steps(6, {"forward": 5000, "backward": 30}, count=1), *(stacks(t, (COMPILES, 10)) for t in range(1, 7))
    last_s = again_s or 14
    later = loop(range(7, last_s), PHASES)
    sampled = [stacks(t, (COMPILES if again_s and t > 10 and not t % 5 else RUNS, 10)) for t in range(7, last_s)]
    assert ("recompiles" in judged(*first, *later, *sampled)) is expected


def test_nor_does_that_of_backward_in_a_loop_whose_first_step_began_before_its_first_marker():
    """Such a step is left out of all times, so its samples are as well: they were 57 % of those in steps."""
    opened = steps(2, {}, count=0, backwards=1, first_backward_s=1.5), *(steps(t, {}, count=0) for t in range(3, 9))
    first = steps(9, PHASES, count=6, first_step_s=8.6, slowed=1, slowed_ns=7100 * MS)
    compiling = (stacks(t, ([*BACKWARD, *COMPILES[2:]], 10)) for t in range(2, 9))
    running = (stacks(t, (RUNS, 7), (BACKWARD, 3)) for t in range(9, 16))
    assert "recompiles" not in judged(*opened, first, *loop(range(10, 16), PHASES), *compiling, *running)


def test_the_collections_that_compiling_makes_are_no_finding_of_their_own():
    collections = {"gc_ns": 70 * MS, "gc_count": 3, "gc_longest_ns": 30 * MS}
    assert "gc_pauses" in found(0, **collections)
    assert {"gc_pauses", "recompiles"} & found(6, **collections).keys() == {"recompiles"}


def noted(t, what, **of_event):
    """A record of what Dynamo noted in a second."""
    event = {"count": 10, "file": "/me/net.py", "line": 7, "function": "forward"} | of_event
    return Compiler(t=t, pid=100, window_s=1.0, events=[CompilerEvents(what, **event)])


def test_the_guard_that_failed_is_named_with_its_line_and_its_own_fix():
    guard = {"reason": "L['length'] == N", "guarded": "/me/net.py:9", "total_ns": 500 * MS}
    finding = found(6, *(noted(t, "recompiled", **guard) for t in range(2, 12)))["recompiles"]
    assert finding.headline == "60 % of each step recompiles forward(): length has a different value"
    assert finding.fixes[0].action == "pass length as a tensor: torch.tensor(length)"
    assert finding.evidence["recompile_ms"] == pytest.approx(50)
    assert finding.evidence["failed_guard"] == "L['length'] == N"
    assert finding.evidence["guarded_at"] == "/me/net.py:9"


def test_a_function_that_torch_gave_up_is_told_though_nothing_compiles():
    records = noted(2, "recompiled", count=7), noted(3, "compiled", count=1), noted(4, "limit", reason="L['n'] == N")
    finding = found(0, *records)["recompiles"]
    assert (finding.severity, finding.cause, finding.where[0].line) == ("info", "gave_up", 7)
    assert finding.headline == "torch.compile gave up on forward(): new inputs run uncompiled"


def test_graph_breaks_are_told_with_their_line():
    finding = found(0, noted(2, "graph_break", line=12, reason="print"))["recompiles"]
    assert (finding.severity, finding.cause, finding.where[0].line) == ("info", "graph_breaks", 12)


def test_samples_alone_show_it_after_attach():
    sampled = (COMPILES, 60), (RUNS, 10), (BACKWARD, 20), (UPDATE, 10)
    session = one_process(NO_GPU, STACKS, *(stacks(2.0 * t, *sampled) for t in range(1, 9)), markers=False)
    assert [finding.rule for finding in diagnose(session)] == ["recompiles"]
