"""torch.compile sees no graph break, no other frame and no recompilation because of us."""

import sys
import types

import pytest

from tests.agent.programs import ROOT, environment, printed_json
from tests.warm_torch import warm_python
from tuimon.agent.loading import dataset, loader_facts
from tuimon.agent.ring.writer import RingWriter
from tuimon.agent.torch_compat import dynamo

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.trust]

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


def test_the_api_inside_a_compiled_function_is_not_traced(tmp_path):
    env = environment(tmp_path / "rings", path=str(ROOT))
    assert printed_json(warm_python("-c", API, env=env)) == [1, 2, [4.0, 4.0]]


def test_a_torch_that_skips_only_one_frame_is_told_of_all_that_hooks_call(monkeypatch):
    skipped = set()
    frames = types.SimpleNamespace(skip_code=skipped.add)
    monkeypatch.setitem(
        sys.modules,
        "torch",
        types.SimpleNamespace(_C=types.SimpleNamespace(_dynamo=types.SimpleNamespace(eval_frame=frames))),
    )
    dynamo.skip(loader_facts.iterator_id)
    assert skipped == {loader_facts.iterator_id.__code__}
    dynamo.skip_own_functions()
    assert {dataset.dataset_name.__code__, RingWriter.set_meta.__code__} < skipped
    assert not [code for code in skipped if "/tuimon/agent/" not in code.co_filename]


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


def test_the_backward_pass_that_torch_traces_to_compile_is_none_of_the_programs(tmp_path):
    script = tmp_path / "traced.py"
    script.write_text(TRACED)
    assert printed_json(warm_python(str(script), env=environment(tmp_path / "rings"))) == [0, 1]
