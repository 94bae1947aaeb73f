"""A log with stand-ins: nothing of the user's is left in it, and its verdict is the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from msgspec.structs import replace

from tests.recorded_logs import LOGS, ROOT, log_path
from tuimon.cli.main import run_command_line
from tuimon.code_origin import is_user_file
from tuimon.records import AnyRecord, CountSettings, Frame, Frames, Header, Notice, Printed, Process, Record
from tuimon.sources.log.reader import read_log
from tuimon.views.export.anonymous import _IN_FILES, CHANGES, anonymous, verdict
from tuimon.views.export.stand_ins import STAND_IN, StandIns, of_messages, of_rules
from tuimon.views.json_text import json_text

PAIRS = sorted((ROOT / "tests" / "data" / "pairs").glob("*.zst"))
BEFORE = [path for path in PAIRS if ".before." in path.name]
#: Texts of tuimon's own, of torch's, the driver's or the kernel's: from a list that does not depend on the user.
_KEPT = """
CompilerEvents.what CountSettings.what DiskReads.kind EarlierRun.gpus Exit.signal Frame.packages Gpu.name Gpu.throttle
GpuPhase.name Header.mode KeepingLine.kept Lead.boundary Loader.role LoaderFacts.context LoaderFacts.kind
LoopStack.boundary MachineMemory.run_cores MemoryHistory.device MemoryHistory.trigger Notice.level Notice.source
PhaseTime.name Printed.loss Process.debug_settings Process.matmul_dtypes Process.parameter_dtypes
Process.python Process.role Process.torch Process.vectors RangeTime.phase RankCollective.name StandingProcess.role
StandingProcess.state Steps.open_phase Threads.written_to ThreadCpu.state Throttle.cause TraceTaken.torch
TracedFlops.dtype TracedFlops.kind TracedSync.call TracedWait.cause
"""
KEPT = set(_KEPT.split())
MARK = "zanzibar"


def structs() -> set[type[msgspec.Struct]]:
    """All types that a log holds."""
    found: set[type[msgspec.Struct]] = set()
    new: list[Any] = list(get_args(AnyRecord))
    while new:
        kind = new.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            found.add(kind)
            new += get_type_hints(kind).values()
        new += get_args(kind)
    return found


def holds_text(kind: Any) -> bool:
    return kind is str or isinstance(kind, str) or any(holds_text(each) for each in get_args(kind))


def test_every_text_of_a_record_has_a_stand_in_or_is_known_to_be_nobodys() -> None:
    texts = {
        f"{kind.__name__}.{name}"
        for kind in structs()
        for name, hint in get_type_hints(kind).items()
        if name in kind.__struct_fields__ and holds_text(hint)
    }
    changed = {f"{kind.__name__}.{name}" for kind, names in CHANGES.items() for name in names}
    changed |= {text for text in texts if text.split(".")[0] in {kind.__name__ for kind in _IN_FILES}} - KEPT
    changed |= {f"{kind}.{name}" for kind in ("CountSettings", "KeepingLine") for name in ("function", "source")}
    assert texts - changed - KEPT == set()
    assert texts >= KEPT


def marked(value: Any, field: str = "") -> Any:
    """The value with a word of the user's in every text that a stand-in is for."""
    match value:
        case str() if field and field not in KEPT:
            return f"{MARK}_{value}" if value else value
        case list() | tuple():
            return type(value)(marked(each, field) for each in value)
        case msgspec.Struct():
            name = type(value).__name__
            changes = {each: marked(getattr(value, each), f"{name}.{each}") for each in value.__struct_fields__}
            if isinstance(value, _IN_FILES) and not is_user_file(value.file):
                changes |= {"file": value.file, "function": value.function}
            return replace(value, **changes)
    return value


_MARKED = [log_path(name) for name in ("h100_masked_loss_pyspy", "h100_check_memory", "demo_two_trainings")]
_MARKED.append(next(path for path in PAIRS if path.name.startswith("hang_0.before")))


@pytest.mark.parametrize("log", _MARKED, ids=lambda path: path.name.partition(".")[0])
def test_a_word_of_the_users_is_in_no_text(log: Path) -> None:
    before = [marked(record) for record in read_log(str(log))]
    assert "".join(map(json_text, before)).count(MARK) > 50
    assert MARK not in "".join(map(json_text, anonymous(before)))


@pytest.mark.parametrize("log", [*LOGS[::3], *BEFORE], ids=lambda path: path.name.rpartition(".")[0])
def test_the_verdict_and_its_gains_stay(log: Path) -> None:
    records = list(read_log(str(log)))
    changed = list(anonymous(records))
    assert verdict(changed) == verdict(records)
    assert [(type(record), record.t, record.pid) for record in changed] == [(type(r), r.t, r.pid) for r in records]


def texts_of(record: Record) -> Iterator[str]:
    """What of a record is the user's as a whole."""
    if isinstance(record, Header):
        yield record.host
    if isinstance(record, Header | Process):
        yield from record.command
    if isinstance(record, Frames):
        for frame in record.frames:
            if is_user_file(frame.file):
                yield from (frame.file, frame.function, frame.source)


@pytest.mark.parametrize("log", LOGS[::3], ids=lambda path: path.name.partition(".")[0])
def test_no_path_host_word_of_a_command_or_source_line_is_left(log: Path) -> None:
    """But for those made of words that the rules know, such as ``loss.backward()``."""
    records = list(read_log(str(log)))
    known = StandIns()
    originals = {text for record in records for text in texts_of(record) if known.code(text) != text}
    left = {text for record in anonymous(records) for text in texts_of(record)}
    assert originals & left == set()
    words = {word.lower() for text in left for word in re.findall(r"[A-Za-z]{5,}", text)}
    users = {word.lower() for text in originals for word in re.findall(r"(?<![A-Za-z.])[A-Za-z]{5,}(?![A-Za-z])", text)}
    stems = tuple(word for word in of_rules() if len(word) >= 4)
    public = {
        word.lower() for text in originals for name in re.findall(r"\w+\.(\w+)", text) for word in name.split("_")
    }
    assert {word for word in words & users - of_rules() - public if not word.startswith(stems)} == set()


@pytest.mark.parametrize(
    ("text", "stand_in"),
    [
        ("loss.backward()", "loss.backward()"),
        ("acme = torch.scatter_add(zebra, 0)  # for ACME", "zza = torch.scatter_add(zzb, 0)"),
        ("acme_loss = AcmeNet(ACME).item()", "zza_loss = ZzaNet(ZZA).item()"),
        ("self.acme2.lstm_cell(x1, h[t])", "self.zza2.zzb_cell(x1, h[t])"),
        ("def __getitem__(self, acme):", "def __getitem__(self, zza):"),
        ('login(key="a1b2c3d4e5", url="10.1.2.3", day=20260728)', 'zza(key="zzb", zzc="0.0.0.0", zzd=0)'),
        ("torch.ops.acme.zebra(x)", "torch.ops.zza.zzb(x)"),
        ("größe.item()", "zza.item()"),
    ],
)
def test_a_line_keeps_its_syntax_and_the_words_of_the_rules(text: str, stand_in: str) -> None:
    assert StandIns().code(text) == stand_in


@pytest.mark.parametrize(
    ("file", "stand_in"),
    [
        ("/home/zoe/acme/train.py", "/zza/zzb/zzc/train.py"),
        (
            "/home/zoe/v/lib/python3.12/site-packages/torch/nn/a.py",
            "/zza/zzb/v/lib/python3.12/site-packages/torch/nn/a.py",
        ),
        ("/usr/lib/python3.12/threading.py", "/zza/lib/python3.12/threading.py"),
        ("/home/zoe/pytorch/torch/optim/adam.py", "/zza/zzb/pytorch/torch/optim/adam.py"),
        (f"/tmp/torchinductor_zoe/ab/cab{'q' * 48}.py", f"/tmp/torchinductor_user/ab/cab{'q' * 48}.py"),
        (f"/scratch/zoe/ab/cab{'q' * 48}.py", f"/tmp/torchinductor_user/ab/cab{'q' * 48}.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("<stdin>", "<stdin>"),
    ],
)
def test_a_path_says_whose_code_it_is_and_of_libraries_which(file: str, stand_in: str) -> None:
    assert StandIns().path(file) == stand_in


def test_a_command_keeps_its_program_module_and_script() -> None:
    names = StandIns()
    words = ["/home/zoe/bin/python3", "-u", "-m", "acme.train", "--token", "secret", "run.py"]
    assert names.command(words) == ["/zza/zzb/bin/python3", "-m", "zzc.train", "run.py", "***"]
    assert names.command(["python", "train.py"]) == ["python", "train.py"]


def test_a_gpu_has_one_stand_in_whoever_names_it() -> None:
    names = StandIns()
    first = names.gpu("GPU-C414855b-f4ce-5980-8781-37cce1dcdf3d")
    assert first.startswith("GPU-")
    assert names.gpu("c414855b-f4ce-5980-8781-37cce1dcdf3d") == first.removeprefix("GPU-")
    assert names.gpu("GPU-00000000-f4ce-5980-8781-37cce1dcdf3d") != first


def test_no_stand_in_is_a_word_that_stays() -> None:
    assert [word for word in of_messages() if word.startswith(STAND_IN)] == []


def test_a_notice_keeps_what_tuimon_says() -> None:
    text = "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)"
    assert StandIns().message(text) == text
    assert StandIns().message("/home/zoe/acme.jsonl was truncated") != "/home/zoe/acme.jsonl was truncated"
    assert not {"acme", "zoe"} & of_messages()


def test_settings_of_a_file_are_lines_as_well() -> None:
    counts = (CountSettings("threads", 3, "acme", "torch.set_num_threads(acme(8))"),)
    (record,) = anonymous([Frames(t=0.0, pid=1, first=0, frames=[Frame("/a.py", 1, "main", counts=counts)])])
    assert isinstance(record, Frames)
    assert record.frames[0].counts == (CountSettings("threads", 3, "zza", "torch.set_num_threads(zza(8))"),)


def test_the_command_writes_a_log_and_says_that_the_verdict_is_the_same(tmp_path: Path, capsys) -> None:
    sent = tmp_path / "send.jsonl"
    assert run_command_line(["export", str(log_path("slow_reader")), "--anonymous", "-o", str(sent)]) == 0
    assert "its verdict is the same" in capsys.readouterr().err
    assert verdict(read_log(str(sent))) == verdict(read_log(str(log_path("slow_reader"))))
    assert not any(isinstance(record, Notice) and record.source == "log" for record in read_log(str(sent)))


@pytest.mark.parametrize("words", [("--phase", "data"), ("--from", "3"), ("--to", "csv")])
def test_it_takes_the_whole_log(words: tuple[str, ...], capsys) -> None:
    assert run_command_line(["export", str(log_path("slow_reader")), "--anonymous", *words]) == 2
    assert "--anonymous" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("patients of ward 7: 450 of 1000, 00:37 left", "450 of 1000, 00:37 left"),
        ("step 450 of 1000", "step 450 of 1000"),
        ("", ""),
    ],
)
def test_a_progress_bar_keeps_its_numbers_alone(place: str, shown: str) -> None:
    (record,) = anonymous([Printed(t=1.0, pid=1, place=place, loss="0.5")])
    assert record == Printed(t=1.0, pid=1, place=shown, loss="0.5")
