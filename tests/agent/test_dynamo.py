"""torch.compile sees nothing of us, and we see its compilations and the captures of CUDA graphs."""

import sys
import types
from types import SimpleNamespace

import pytest

from tests.agent.programs import ROOT, environment, printed_json
from tests.warm_torch import warm_python
from tuimon.agent import cuda
from tuimon.agent.loading import loader_facts
from tuimon.agent.ring.layout import Event, unpacked
from tuimon.agent.ring.writer import RingWriter
from tuimon.agent.torch_compat import compilations, dynamo, rebinding, unobserved
from tuimon.agent.torch_compat.compilations import new_events

pytest.importorskip("torch")
pytestmark = pytest.mark.trust

PROGRAM = """
import json, sys
import torch, torch._dynamo, torch._logging
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

torch._logging._init_logs()  # as TORCH_LOGS has it, which was read when torch was imported
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
x = torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
results = {}


def trial(name, make, *arguments):
    counter = CompileCounter()
    function = make(counter)
    for _ in range(4):
        function(*arguments)
    results[name] = [counter.frame_count, counter.op_count, sum(counters["graph_break"].values()),
                  sorted(counters["graph_break"]), counters["stats"]["unique_graphs"]]
    torch._dynamo.reset()
    counters.clear()


def whole_model(counter):
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    return lambda: compiled(x).sum().backward()


def optimizer_step(counter):
    model(x).sum().backward()
    return torch.compile(optimizer.step, backend=counter)


def whole_step(counter):
    @torch.compile(backend=counter)
    def step():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss
    return step


def gradient(counter):
    z = x.clone().requires_grad_()
    return torch.compile(lambda: torch.autograd.grad((z * z).sum(), z)[0] * 2, backend=counter)


def epoch(counter):
    loader = torch.utils.data.DataLoader(torch.randn(8, 8), 4)

    @torch.compile(backend=counter)
    def run():
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
    return run


def functional(counter):
    per_sample = torch.func.vmap(torch.func.grad(lambda w: (w * w).sum()))
    return torch.compile(lambda: per_sample(x), backend=counter, fullgraph=True)


def explained(counter):
    report = torch._dynamo.explain(model)(x)
    results["explain"] = [report.graph_count, report.graph_break_count]
    return lambda: None


for make in (whole_model, optimizer_step, whole_step, gradient, epoch, functional, explained):
    trial(make.__name__, make)
hooks = sys.modules.get("_tuimon_agent.importlib_bootstrap.hooks")
print(json.dumps(hooks is not None), file=sys.stderr)
print(json.dumps(results, indent=1))
"""


def traced_frames(log):
    return [line.partition("start tracing ")[2] for line in log.splitlines() if "start tracing " in line]


@pytest.mark.torch
def test_the_same_graphs_breaks_and_frames(tmp_path):
    script = tmp_path / "compile.py"
    script.write_text(PROGRAM)
    logs = {"TORCH_LOGS": "torch._dynamo,recompiles"}
    plain = warm_python(str(script), env=environment(None, logs))
    ours = warm_python(str(script), env=environment(tmp_path / "rings", logs))
    assert plain.returncode == ours.returncode == 0, ours.stderr[-3000:]
    assert ours.stdout == plain.stdout
    assert '"whole_model": [\n  1,' in plain.stdout
    frames = traced_frames(plain.stderr)
    assert frames and traced_frames(ours.stderr) == frames
    assert ours.stderr.count("Recompiling") == plain.stderr.count("Recompiling")


API = """
import json, sys, torch, tuimon
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

@tuimon.phase("decorated")
def inner(x):
    return x * 3

def function(x):
    with tuimon.phase("inside"):
        y = inner(x) + 1
    tuimon.mark("m")
    tuimon.step()
    return y

counter = CompileCounter()
compiled = torch.compile(function, backend=counter, fullgraph=True)
for _ in range(3):
    with tuimon.phase("outside"):
        result = compiled(torch.ones(2))
print(json.dumps([counter.frame_count, counter.op_count, result.tolist()]))
"""


@pytest.mark.torch
def test_the_api_inside_a_compiled_function_is_not_traced(tmp_path):
    env = environment(tmp_path / "rings", path=str(ROOT))
    assert printed_json(warm_python("-c", API, env=env)) == [1, 2, [4.0, 4.0]]


@pytest.mark.torch
def test_a_torch_that_skips_only_one_frame_is_told_of_all_that_hooks_call(monkeypatch):
    skipped = set()
    internals = SimpleNamespace(eval_frame=SimpleNamespace(skip_code=skipped.add))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(_dynamo=internals)))
    dynamo.skip(loader_facts.iterator_id)
    assert skipped == {loader_facts.iterator_id.__code__}
    dynamo.skip_own_functions()
    assert {unobserved.dataset_name.__code__, RingWriter.set_meta.__code__} < skipped
    assert not [code for code in skipped if "/tuimon/agent/" not in code.co_filename]


@pytest.mark.torch
def test_a_torch_without_what_is_looked_for_runs_nothing_of_its_own(monkeypatch):
    """Its ``__getattr__`` would, and so would Python to word the error; what a handler raises there could be lost."""
    bare, asked = types.ModuleType("torch"), []
    bare.__getattr__ = asked.append
    monkeypatch.setitem(sys.modules, "torch", bare)
    dynamo.skip(lambda: None)
    dynamo.skip_with_callees(lambda: None)
    dynamo.skip_own_functions()
    assert asked == []


TRACED = """
import glob, json, os, sys, torch
model = torch.compile(torch.nn.Linear(8, 2), backend="aot_eager")
loss = model(torch.randn(4, 8)).sum()
runtime, layout = sys.modules["_tuimon_agent.runtime"], sys.modules["_tuimon_agent.ring.layout"]
from _tuimon_agent.ring.reader import RingReader
reader = RingReader(runtime.writer().path)

def passes():
    runtime.writer().flush()
    return sum(marker.kind == layout.BACKWARD_BEGIN for marker in reader.read())

traced = passes()
loss.backward()
print(json.dumps([traced, passes()]))
"""


@pytest.mark.torch
def test_the_backward_pass_that_torch_traces_to_compile_is_none_of_the_programs(tmp_path):
    assert printed_json(warm_python("-c", TRACED, env=environment(tmp_path / "rings"))) == [0, 1]


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
    return SimpleNamespace(**entry | noted)


def utils(*entries, unimplemented=(), skips=0, breaks=()):
    counters = {"unimplemented": dict(unimplemented), "inductor": {"cudagraph_skips": skips}}
    return SimpleNamespace(_compilation_metrics=entries, counters=counters, graph_break_reasons=list(breaks))


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


@pytest.mark.parametrize("packages", ["/v/site-packages", "/usr/lib/python3/dist-packages"])
def test_a_graph_breaks_at_the_users_line_for_the_reason_that_torch_explains(packages):
    stack = [
        SimpleNamespace(filename="/me/model.py", lineno=12, name="forward"),
        SimpleNamespace(filename=f"{packages}/lib/log.py", lineno=3, name="write"),
    ]
    reason = "Failed to trace\n  Explanation: Dynamo cannot trace print\n  Hint: remove it"
    broken = utils(breaks=[SimpleNamespace(user_stack=stack, reason=reason)])
    assert new_events(broken) == [Event("graph_break", 1, ("/me/model.py", 12, "forward"), "Dynamo cannot trace print")]


def test_a_torch_that_notes_nothing_has_no_events():
    assert new_events(SimpleNamespace()) == []


def test_a_text_is_read_as_it_was_written_and_too_many_lose_their_reasons():
    event = Event("recompiled", 5, CODE, "L['n'] == N", "model.py:9")
    assert unpacked(compilations.event_text(event)) == event._replace(value=0)
    texts = {compilations.event_text(event._replace(reason=f"guard {number}")) for number in range(500)}
    assert len(texts) <= compilations.TEXTS_LIMIT + 2
    assert unpacked("damaged") is None


COMPILED_ANEW = """
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
    found = printed_json(warm_python("-c", COMPILED_ANEW, env=environment(tmp_path / "rings", path=str(ROOT))))
    assert ["compiled", [5, "scaled"], "", True] in found
    again = [event for event in found if event[0] == "recompiled" and event[1] == [5, "scaled"]]
    assert len(again) == 3 and all("factor" in event[2] and event[3] for event in again)
    assert [event[1] for event in found if event[0] == "graph_break"][:1] == [[7, "scaled"]]


@pytest.fixture
def graph_class():
    """A class of graphs that is followed; and what is undone at the end."""

    class Graph:
        def __init__(self, seen):
            self.seen = seen

        def capture_begin(self, pool=None):
            self.seen.append(cuda.any_capture())
            if pool == "bad":
                raise RuntimeError("cannot capture")

        def capture_end(self):
            self.seen.append(cuda.any_capture())
            if self.seen[0] == "broken":
                raise RuntimeError("invalidated")

    Graph.waited = []
    cuda.hook_captures(SimpleNamespace(CUDAGraph=Graph), lambda: Graph.waited.append(cuda.any_capture()))
    yield Graph
    rebinding.undo_all()


def test_a_capture_is_known_from_before_it_begins_until_it_has_ended(graph_class):
    graph = graph_class([])
    assert not cuda.any_capture()
    graph.capture_begin()
    assert cuda.any_capture() and graph_class.waited == [True]
    graph.capture_end()
    assert not cuda.any_capture()
    assert graph.seen == [True, True]


def test_captures_that_fail_are_over(graph_class):
    with pytest.raises(RuntimeError, match="cannot capture"):
        graph_class([]).capture_begin(pool="bad")
    assert not cuda.any_capture()
    graph = graph_class(["broken"])
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="invalidated"):
        graph.capture_end()
    assert not cuda.any_capture()


def test_a_torch_without_graphs():
    cuda.hook_captures(SimpleNamespace(), lambda: None)
    cuda.hook_captures(SimpleNamespace(CUDAGraph=object), lambda: None)
