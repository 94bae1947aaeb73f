"""The facts that a process publishes of itself."""

import sys
import time
from types import SimpleNamespace

import pytest

from tests.agent.programs import environment, fake_torch, python
from tuimon.agent.process import facts, loop_stacks, precision
from tuimon.agent.ring.reader import RingReader
from tuimon.proc.loop_stacks import reported_frames


def test_the_facts_of_a_process(program):
    body = """
    from _tuimon_agent.ring.reader import RingReader
    print(json.dumps(RingReader(runtime._writer.path).meta()))
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


class FakeCuda:
    """What ``torch.cuda`` reports once the user has initialised it."""

    def __init__(self, initialized, uuid="0000-{}"):
        self._initialized = initialized
        self._uuid = uuid

    def is_initialized(self):
        return self._initialized

    def current_device(self):
        assert self._initialized, "the call would initialise CUDA"
        return 1

    def device_count(self):
        return 3

    def memory_reserved(self, index):
        return [0, 0, 1024][index]

    def get_device_properties(self, index):
        return SimpleNamespace(uuid=self._uuid.format(index))


def test_gpus_are_named_once_cuda_is_initialised_and_never_before(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.cuda", FakeCuda(False))
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    precision.forget()  # the optimizers that other tests have stepped
    loop_stacks.forget()  # and of their loops
    assert "gpu_uuids" not in facts.late_facts()
    monkeypatch.setitem(sys.modules, "torch.cuda", FakeCuda(True))
    assert facts.late_facts()["gpu_uuids"] == ["GPU-0000-1", "GPU-0000-2"]


def test_gpus_of_rocm_are_named_as_its_driver_names_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(hip="6.4.0")))
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    cuda = FakeCuda(True, "66306131-6232-6333-6434-65356636303{}")  # the ASCII letters f0a1b2c3d4e5f60 and a digit
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    assert facts.late_facts()["gpu_uuids"] == ["GPU-f0a1b2c3d4e5f601", "GPU-f0a1b2c3d4e5f602"]
    monkeypatch.setitem(sys.modules, "torch.cuda", FakeCuda(True, "ffffffff-0000-6333-6434-65356636303{}"))
    assert "gpu_uuids" not in facts.late_facts()  # another form than is known, which would be no GPU's


def test_how_many_threads_share_out_an_operation():
    torch = pytest.importorskip("torch")
    assert facts.late_facts()["intra_op_threads"] == torch.get_num_threads()


def test_settings_for_debugging_that_slow_every_step_down(monkeypatch):
    torch = pytest.importorskip("torch")
    for name in ("CUDA_LAUNCH_BLOCKING", "TORCH_DISTRIBUTED_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    assert "debug_settings" not in facts.late_facts()
    with torch.autograd.set_detect_anomaly(True):
        assert facts.late_facts()["debug_settings"] == ["anomaly_detection"]
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
