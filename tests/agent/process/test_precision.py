"""The facts about the precision that a training computes in."""

import gc
import sys
import weakref

import pytest

from tests.agent.programs import environment, meta_of, printed_json
from tests.warm_torch import warm_python
from tuimon.agent.process import precision

torch = pytest.importorskip("torch")


def precision_facts(tmp_path, body):
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
meta = RingReader(runtime._writer.path).meta()
print(json.dumps([meta.get(name) for name in ("parameter_dtypes", "tf32", "cudnn_tf32")]))
"""
    done = warm_python("-c", script, env=environment(tmp_path / "rings"))
    assert done.stderr == ""
    return printed_json(done)


def test_half_precision_and_tf32_by_its_old_name(tmp_path):
    body = "model.to(torch.bfloat16); torch.set_float32_matmul_precision('high')\n"
    body += "torch.backends.cudnn.allow_tf32 = False"
    assert precision_facts(tmp_path, body) == [["bfloat16"], True, False]


def test_tf32_by_its_new_name(tmp_path):
    body = "m = torch.backends.cuda.matmul; m.allow_tf32 = m.allow_tf32 or True"
    assert precision_facts(tmp_path, body) == [["float32"], True, True]


def published(runtime):
    """The types of matrix products, those of parameters, and what is known of a scaler."""
    meta = meta_of(runtime)
    return tuple(meta.get(name) for name in ("matmul_dtypes", "parameter_dtypes", "grad_scaler"))


def convolutions():
    layers = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.LazyLinear(3))


def test_autocast_that_is_left_before_backward(hooked):
    model, images = convolutions(), torch.ones(2, 1, 8, 8)
    model(images)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([0, 1]))
        assert loss.dtype == torch.float32
        loss.backward()
        optimizer.step()
    assert published(hooked) == (["bfloat16"], ["float32"], None)


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
    precision.forget()
    value = torch.nn.Linear(1, 1)(torch.ones(1, 1))
    near = value.sin()
    for _ in range(precision.NODES_LIMIT):
        value = value.sin()
    precision.read_products((value,))
    assert precision.facts() == {}
    precision.read_products((torch.autograd.graph.get_gradient_edge(near),))
    assert precision.facts() == {"matmul_dtypes": ["float32"]}
    precision.forget()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaler(hooked, weight, enabled):
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu", enabled=enabled)
    for _ in range(2):
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert published(hooked)[2] is enabled


def test_no_graph_is_kept_alive(hooked):
    model = torch.nn.Linear(4, 1)
    loss = model(torch.ones(2, 4)).sum()
    left = weakref.ref(loss)
    loss.backward()
    assert published(hooked)[0] == ["float32"]
    del loss
    gc.collect()
    assert left() is None


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
    assert precision.vectors() == {"vectors": vectors}


def test_a_torch_that_does_not_say_what_the_cpu_has(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.cpu", type("Older", (), {"_is_avx2_supported": lambda: True}))
    assert precision.vectors() == {}


def test_this_torch_says_what_the_cpu_has():
    assert all(hasattr(torch.cpu, query) for _, query in precision.VECTORS)
