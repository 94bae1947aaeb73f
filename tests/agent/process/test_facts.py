"""The facts that a process publishes of itself, its optimizer and its precision."""

import gc
import sys
import time
import tracemalloc
import weakref
from types import SimpleNamespace

import pytest

from tests.agent.programs import environment, fake_torch, meta_of, printed_json, python
from tests.warm_torch import warm_python
from tuimon.agent import pace
from tuimon.agent.process import facts, loop_stacks, training_facts
from tuimon.agent.ring.reader import RingReader
from tuimon.proc.ring_facts import reported_frames


def test_the_facts_of_a_process(program):
    body = """
    print(json.dumps(RingReader(runtime.writer().path).meta()))
    """
    meta = program(body, RANK="3", WORLD_SIZE="8", TUIMON_OUTPUT="/o", CUDA_VISIBLE_DEVICES="2,3")
    expected = {
        "run": "test",
        "output": "/o",
        "rank": 3,
        "world_size": 8,
        "cuda_visible_devices": "2,3",
        "gpu_uuids": [],
        "torch": "0.0",
        "python": ".".join(map(str, sys.version_info[:3])),
    }
    assert {key: meta[key] for key in expected} == expected


def fake_cuda(initialized, uuid="0000-{}"):
    """What ``torch.cuda`` reports once the user has initialised it."""

    def current_device():
        assert initialized, "the call would initialise CUDA"
        return 1

    return SimpleNamespace(
        is_initialized=lambda: initialized,
        current_device=current_device,
        device_count=lambda: 3,
        memory_reserved=[0, 0, 1024].__getitem__,
        get_device_properties=lambda index: SimpleNamespace(uuid=uuid.format(index)),
    )


def test_gpus_are_named_once_cuda_is_initialised_and_never_before(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.cuda", fake_cuda(False))
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    training_facts.forget()  # the optimizers that other tests have stepped
    loop_stacks.forget()  # and of their loops
    assert "gpu_uuids" not in facts.late_facts()
    monkeypatch.setitem(sys.modules, "torch.cuda", fake_cuda(True))
    assert facts.late_facts()["gpu_uuids"] == ["GPU-0000-1", "GPU-0000-2"]


def test_gpus_of_rocm_are_named_as_its_driver_names_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(hip="6.4.0")))
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    cuda = fake_cuda(True, "66306131-6232-6333-6434-65356636303{}")  # the ASCII letters f0a1b2c3d4e5f60 and a digit
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    assert facts.late_facts()["gpu_uuids"] == ["GPU-f0a1b2c3d4e5f601", "GPU-f0a1b2c3d4e5f602"]
    monkeypatch.setitem(sys.modules, "torch.cuda", fake_cuda(True, "ffffffff-0000-6333-6434-65356636303{}"))
    assert "gpu_uuids" not in facts.late_facts()  # another form than is known, which would be no GPU's


def test_how_many_threads_share_out_an_operation():
    torch = pytest.importorskip("torch")
    assert facts.late_facts()["intra_op_threads"] == torch.get_num_threads()


def test_settings_for_debugging_that_slow_every_step_down(monkeypatch):
    torch = pytest.importorskip("torch")
    for name in ("CUDA_LAUNCH_BLOCKING", "PYTHONTRACEMALLOC", "TORCH_DISTRIBUTED_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    assert "debug_settings" not in facts.late_facts()
    with torch.autograd.set_detect_anomaly(True):
        assert facts.late_facts()["debug_settings"] == ["anomaly_detection"]
    with monkeypatch.context() as traced:
        traced.setattr(tracemalloc, "is_tracing", lambda: True)
        assert facts.late_facts()["debug_settings"] == ["tracemalloc"]
    monkeypatch.setenv("PYTHONTRACEMALLOC", "10")
    assert facts.late_facts()["debug_settings"] == ["tracemalloc"]
    monkeypatch.setenv("PYTHONTRACEMALLOC", "0")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "INFO")
    assert "debug_settings" not in facts.late_facts()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
    assert facts.late_facts()["debug_settings"] == ["launch_blocking", "distributed_debug"]


FAILS = """
import torch
def load(): raise KeyError("no such column")
load()
"""


OWN_TEXT = """
import torch
class Own(Exception):
    def __str__(self): return "of its own making"
def load(): raise Own("no such column")
load()
"""


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (FAILS, "KeyError: 'no such column'\n"),
        (FAILS.replace('"no such column"', '"a" * 9000'), "KeyError: 'aaa"),
        (FAILS.replace('"no such column"', "chr(0x5217) * 9000"), "KeyError: '\u5217\u5217"),
        (FAILS.replace("load()\n", "try: load()\nexcept KeyError: raise SystemExit(3)\n"), None),
        (FAILS + "1", "KeyError: 'no such column'\n"),
        (OWN_TEXT, "Own\n"),
        (FAILS.replace("KeyError", "SyntaxError"), "SyntaxError: no such column\n"),
        ("import sys, torch; sys.ps1 = '>>> '; 1/0", None),  # as a prompt, which goes on
        ("import sys, torch\ntry: print(undefined)\nexcept NameError as error: sys.last_value = error", None),
    ],
)
def test_the_error_that_ends_a_program_is_published(tmp_path, body, error):
    script, rings = tmp_path / "train.py", tmp_path / "rings"
    script.write_text(body)
    python(str(script), env=environment(rings, path=fake_torch(tmp_path)))
    (ring,) = rings.iterdir()
    meta = RingReader(str(ring)).meta()
    assert (meta.get("error") or "").startswith(error or "") and ("error" in meta) == (error is not None)
    if error is not None:
        raised_in = reported_frames(meta["raised_in"], "frames")
        assert [(file, function) for file, _, function in raised_in] == [
            (str(script), "<module>"),
            (str(script), "load"),
        ]
        assert meta["run"] == "test" and meta["raised_ns"] <= time.monotonic_ns()


DEEP = """
import torch
from _tuimon_agent import runtime
runtime.writer().add_meta({"gpu_uuids": ["GPU-1"], "loop": "x" * 2000})
library = {"load": lambda: 1 / 0}
for number in range(100):
    code = compile("def load(): below()", "/" + "folder/" * 20 + "lib/python3.11/site-packages/%d.py" % number, "exec")
    library = {"below": library["load"]}
    exec(code, library)
def step(): library["load"]()
step()
"""


def test_below_a_hundred_frames_of_libraries_the_programs_line_and_all_other_facts_are_kept(tmp_path):
    script, rings = tmp_path / "train.py", tmp_path / "rings"
    script.write_text(DEEP)
    python(str(script), env=environment(rings, path=fake_torch(tmp_path)))
    (ring,) = rings.iterdir()
    meta = RingReader(str(ring)).meta()
    functions = [function for _, _, function in reported_frames(meta["raised_in"], "frames")]
    assert functions == ["<module>", "step", *["load"] * 15, "<lambda>"]
    assert (meta["error"], meta["gpu_uuids"]) == ("ZeroDivisionError: division by zero\n", ["GPU-1"])


torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def none_known():
    training_facts.forget()
    yield
    training_facts.forget()


def step(*optimizers):
    """Let each make an update of all its parameters."""
    for optimizer in optimizers:
        sum(p.sum() for group in optimizer.param_groups for p in group["params"] if p.requires_grad).backward()
        optimizer.step()


def described(runtime):
    """What the ring says of the optimizers."""
    return meta_of(runtime).get("optimizers", [])


@pytest.mark.parametrize("setting", [{"fused": False}, {}])  # one that is left to torch is unknown
def test_what_is_published_of_an_optimizer(hooked, setting):
    model = torch.nn.Linear(8, 4)
    model.bias.requires_grad_(False)
    step(torch.optim.AdamW(model.parameters(), **setting))
    counted = {"groups": 1, "tensors": 1, "elements": 32, "device": "cpu"}
    counted |= {"parameter_bytes": 36 * 4, "gradient_bytes": 32 * 4, "state_bytes": 2 * 32 * 4 + 4}  # and its step
    assert described(hooked) == [{"name": "AdamW", "package": "torch", **counted, **setting}]


def test_several_that_take_turns_are_read_once_each(hooked, monkeypatch):
    plain, read = training_facts.describe, []
    monkeypatch.setattr(training_facts, "describe", lambda *args: (read.append(args[0]), plain(*args)))
    pair = [kind([torch.nn.Parameter(torch.ones(3))], lr=0.1) for kind in (torch.optim.SGD, torch.optim.RMSprop)]
    for _ in range(100):
        step(*pair)
    assert read == pair
    assert [found["name"] for found in described(hooked)] == ["SGD", "RMSprop"]


def test_one_whose_updates_are_never_at_a_boundary_at_which_facts_are_due(hooked, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(20):
        for _ in range(4):  # accumulated: every fifth boundary is an update
            weight.sum().backward()
        optimizer.step()
    assert [found["name"] for found in described(hooked)] == ["SGD"]


def test_one_that_begins_to_step_late(hooked, monkeypatch, weight):
    monkeypatch.setattr(pace, "SHORTEST", 10**9)  # every update is seen
    first = torch.optim.SGD([weight], lr=0.1)
    for _ in range(40):
        step(first)
    assert not hooked.facts_due
    second = torch.optim.Adam([weight])
    for _ in range(400):
        step(second)
    assert [found["name"] for found in described(hooked)] == ["SGD", "Adam"]
    assert not hooked.facts_due


def test_many_optimizers_are_not_all_described(hooked):
    many = [torch.optim.SGD([torch.nn.Parameter(torch.ones(n))], lr=0.1) for n in range(1, 9)]
    for _ in range(10):
        step(*many)
    assert [found["elements"] for found in described(hooked)] == [1, 2, 3, 4]
    assert not training_facts.is_new(many[-1])


def test_one_that_is_gone_gives_way_to_another():
    weights = [torch.nn.Parameter(torch.ones(n)) for n in range(1, 7)]
    kept = [torch.optim.SGD([weight], lr=0.1) for weight in weights[:3]]
    for optimizer in kept:
        assert training_facts.note(optimizer)
    for weight in weights[3:]:
        latest = torch.optim.SGD([weight], lr=0.1)
        assert training_facts.note(latest)
        found = [each["elements"] for each in training_facts.optimizer_facts()["optimizers"]]
        assert found == [1, 2, 3, weight.numel()]
        del latest
        gc.collect()


def test_nothing_of_an_optimizer_is_kept_alive(hooked):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))])
    step(optimizer)
    left = [weakref.ref(optimizer), weakref.ref(optimizer.param_groups[0]["params"][0])]
    assert described(hooked)
    del optimizer
    gc.collect()
    assert [reference() for reference in left] == [None, None]


def test_more_tensors_than_can_be_counted_are_unknown(monkeypatch, weight):
    monkeypatch.setattr(training_facts, "TENSORS_LIMIT", 1)
    optimizer = torch.optim.SGD([weight, torch.nn.Parameter(torch.ones(2))], lr=0.1)
    training_facts.note(optimizer)
    (found,) = training_facts.optimizer_facts()["optimizers"]
    assert found["name"] == "SGD"
    assert "tensors" not in found


def test_bytes_that_c_alone_does_not_know_are_unknown(weight):
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    lists = torch.optim.LBFGS([weight])
    lists.step(lambda: (lists.zero_grad(), weight.sum().backward(), weight.sum())[2])
    mixed = torch.optim.SGD([weight, torch.nn.Parameter(torch.ones(2, device="meta"))], lr=0.1)
    optimizers = [torch.optim.SparseAdam(table.parameters()), lists, mixed]
    for optimizer in optimizers:
        training_facts.note(optimizer)
    found = training_facts.optimizer_facts()["optimizers"]
    assert all("elements" in each and "parameter_bytes" not in each for each in found) and len(found) == 3


def test_an_optimizer_of_another_kind_harms_nothing(weight):
    assert not training_facts.note(object())
    assert training_facts.optimizer_facts() == {}
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.param_groups = None
    training_facts.note(optimizer)
    assert training_facts.optimizer_facts()["optimizers"] == [{"name": "SGD", "package": "torch"}]


def test_an_optimizer_is_seen_once_it_is_made(monkeypatch, weight):
    class Family(torch.optim.Optimizer):
        pass

    class Own(Family):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure=None):
            return None

    monkeypatch.setattr(sys.modules["torch.optim.optimizer"], "Optimizer", Family)
    assert not training_facts.any_made()
    Own([weight])
    assert training_facts.any_made()
    monkeypatch.delitem(sys.modules, "torch.optim.optimizer")
    assert not training_facts.any_made()  # without torch there is none


OLD_NAME = """model.to(torch.bfloat16); torch.set_float32_matmul_precision('high')
torch.backends.cudnn.allow_tf32 = False"""
NEW_NAME = "m = torch.backends.cuda.matmul; m.allow_tf32 = m.allow_tf32 or True"


@pytest.mark.parametrize(
    ("body", "facts"), [(OLD_NAME, [["bfloat16"], True, False]), (NEW_NAME, [["float32"], True, True])]
)
def test_half_precision_and_tf32(body, facts, tmp_path):
    script = f"""
import json, torch, warnings
warnings.simplefilter("error")
model = torch.nn.Linear(4, 1)
{body}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4, dtype=model.weight.dtype)).sum().backward()
    optimizer.step()
from _tuimon_agent import runtime
from _tuimon_agent.ring.reader import RingReader
meta = RingReader(runtime.writer().path).meta()
print(json.dumps([meta.get(name) for name in ("parameter_dtypes", "tf32", "cudnn_tf32")]))
"""
    done = warm_python("-c", script, env=environment(tmp_path / "rings"))
    assert (printed_json(done), done.stderr) == (facts, "")


def published(runtime):
    """The types of matrix products, and those of parameters."""
    meta = meta_of(runtime)
    return tuple(meta.get(name) for name in ("matmul_dtypes", "parameter_dtypes"))


def test_autocast_that_is_left_before_backward(hooked):
    layers = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten()
    model, images = torch.nn.Sequential(*layers, torch.nn.LazyLinear(3)), torch.ones(2, 1, 8, 8)
    model(images)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([0, 1]))
        assert loss.dtype == torch.float32
        loss.backward()
        optimizer.step()
    assert published(hooked) == (["bfloat16"], ["float32"])


def test_a_part_in_full_precision_is_told_apart(hooked):
    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = body(torch.ones(2, 4))
    head(hidden.float()).sum().backward()
    assert published(hooked)[0] == ["bfloat16", "float32"]


def test_without_autocast(hooked, weight):
    weight.sum().backward()
    assert published(hooked)[0] is None  # no product
    torch.autograd.grad(torch.nn.Linear(3, 1)(weight), weight)
    assert published(hooked)[0] == ["float32"]


def test_a_long_graph_is_walked_in_part():
    training_facts.forget()
    value = torch.nn.Linear(1, 1)(torch.ones(1, 1))
    near = value.sin()
    for _ in range(training_facts.NODES_LIMIT):
        value = value.sin()
    training_facts.read_products((value,))
    assert training_facts.precision_facts() == {}
    training_facts.read_products((torch.autograd.graph.get_gradient_edge(near),))
    assert training_facts.precision_facts() == {"matmul_dtypes": ["float32"]}
    training_facts.forget()


class Cpu:
    """A stand-in for ``torch.cpu``, of a CPU with AVX-512 and products of bfloat16."""

    _is_amx_tile_supported = staticmethod(lambda: False)
    _is_avx512_bf16_supported = staticmethod(lambda: True)
    _is_avx512_supported = staticmethod(lambda: True)
    _is_avx2_supported = staticmethod(lambda: True)


@pytest.mark.parametrize(
    ("limit", "vectors"),
    [("", "avx512_bf16"), ("AVX512_CORE", "avx512"), ("AVX2", "avx2"), ("avx512_core_bf16", "avx512_bf16")],
)
def test_what_products_on_the_cpu_may_use(monkeypatch, limit, vectors):
    monkeypatch.setitem(sys.modules, "torch.cpu", Cpu)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert training_facts.vectors() == {"vectors": vectors}


def test_a_torch_that_does_not_say_what_the_cpu_has(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.cpu", type("Older", (), {"_is_avx2_supported": lambda: True}))
    assert training_facts.vectors() == {}


def test_this_torch_says_what_the_cpu_has():
    assert all(hasattr(torch.cpu, query) for _, query in training_facts.VECTORS)
