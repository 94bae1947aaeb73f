"""The facts about the precision that a training computes in."""

import pytest

from tests.agent.programs import environment, printed_json
from tests.warm_torch import warm_python
from tuimon.agent.process import precision

pytest.importorskip("torch")


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
print(json.dumps([meta.get("parameter_dtypes"), meta.get("tf32")]))
"""
    done = warm_python("-c", script, env=environment(tmp_path / "rings"))
    assert done.stderr == ""
    return printed_json(done)


def test_plain_float32(tmp_path):
    assert precision_facts(tmp_path, "") == [["float32"], False]


def test_half_precision_and_tf32_by_its_old_name(tmp_path):
    body = "model.to(torch.bfloat16); torch.set_float32_matmul_precision('high')"
    assert precision_facts(tmp_path, body) == [["bfloat16"], True]


def test_tf32_by_its_new_name(tmp_path):
    body = "m = torch.backends.cuda.matmul; m.allow_tf32 = m.allow_tf32 or True"
    assert precision_facts(tmp_path, body) == [["float32"], True]


def test_an_optimizer_of_another_kind_harms_nothing(monkeypatch):
    monkeypatch.setattr(precision, "_types", [])
    precision.read_dtypes(object())
    assert precision.facts() == {}
