"""The code pairs of ``tuimon explain``, tried: the rule fires before, and not after, and both compute the same.

What runs on a CPU is recorded: the page's code, set into a program of ``tests/explain_pairs/programs``, under ``tuimon
run``. The logs are kept in ``tests/data/pairs`` under the hash of that program's text, so that no log is of other code.
What needs a GPU is simulated: the page's lines in the samples of a simulated training, or what NVML shows of it.
What both sides compute is compared in ``pair_results.py``.
"""

import argparse
import contextlib
import gzip
import hashlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tests.diagnosis.gpu import BACKWARD, FETCH, FORWARD, ITEM, LINES, STEP, TO_DEVICE, USUAL, beside_steps
from tests.gpu_simulator import loops
from tests.gpu_simulator.machine import MS, US
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID, Training
from tests.scenarios.streams import STREAMS, Step, simulate
from tests.session.records import header, process
from tests.truth.kind import Column, Kind, of
from tests.truth.running import Failed, finished, started, under_tuimon
from tuimon.diagnosis.explain.page import CodePair, all_pages
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import fold
from tuimon.records import Frame, Frames, GpuProcess, GpuTime, MachineMemory, Record, Threads, TorchMemory
from tuimon.sources.log.source import read_records

When = Literal["before", "after"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "explain_pairs" / "programs"
LOGS = ROOT / "tests" / "data" / "pairs"
_MARK = "# <- the code"
_SECONDS = {
    "step_time_drift": 40.0,
    "memory_pressure": 40.0,
    "straggler_rank": 14.0,
    "comm_bound": 20.0,
    "hang": 45.0,
    "gc_pauses": 16.0,
}
_OF_THE_MOMENT = ("hang", "gil_contention")
_RANKS = ("straggler_rank", "comm_bound")
#: The memory of the machine that the programs are thought to run on: less than the code before takes.
_MACHINE_BYTES = 850_000_000


class Side(NamedTuple):
    """The code before or after, of the pair of this number on a rule's page."""

    rule: str
    number: int
    when: When
    code: CodePair

    @property
    def pair(self) -> str:
        """As the program is called that the code is set into."""
        return f"{self.rule}_{self.number}"

    @property
    def name(self) -> str:
        return f"{self.pair}.{self.when}"

    @property
    def text(self) -> str:
        return self.code.before if self.when == "before" else self.code.after

    def finding(self, records: Iterable[Record]) -> Finding | None:
        """The rule's finding over the whole run, with the pair's cause if it names one."""
        _, findings = fold(records)
        return next((f for f in findings if f.rule == self.rule and self.code.cause in (None, f.cause)), None)

    @property
    def is_recorded(self) -> bool:
        """True if it runs on a CPU."""
        on_gpu = self.name == "compute_bound_cpu_0.after"
        return (PROGRAMS / f"{self.pair}.py").exists() and not on_gpu

    @property
    def program(self) -> str:
        """The program's text, with the page's code in it."""
        return (PROGRAMS / f"{self.pair}.py").read_text().replace(_MARK, self.text)

    @property
    def log(self) -> Path:
        """The file of its log, recorded or not."""
        parts = self.program + (PROGRAMS / "course.py").read_text()
        return LOGS / f"{self.name}.{hashlib.sha256(parts.encode()).hexdigest()[:12]}.jsonl.gz"

    def records(self, log: Path | None = None) -> Iterator[Record]:
        """Its log's, or simulated ones; for a lack of memory, as on a machine that has less."""
        if not self.is_recorded:
            yield from _of_stream(self) if self.rule in _STREAMS else _FACTS[self.rule](self.when)
            return
        own_bytes = 0
        for record in read_records(str(log or self.log)):
            if isinstance(record, Threads):
                own_bytes = record.rss_bytes or own_bytes
            if isinstance(record, MachineMemory) and self.rule == "memory_pressure":
                left = max(0, _MACHINE_BYTES - own_bytes)
                sizes = {"total_bytes": _MACHINE_BYTES, "available_bytes": left}
                yield MachineMemory(t=record.t, pid=0, window_s=record.window_s, **sizes)
            else:
                yield record


class Judged(NamedTuple):
    """A side, and what the pair's rule found."""

    side: Side
    finding: Finding | None
    log: Path
    fault: str | None = None  # in what the code after computes

    @property
    def is_right(self) -> bool:
        """True if the rule fires before, and not after, and both compute the same."""
        return (self.finding is not None) == (self.side.when == "before") and self.fault is None


class Pairs(Kind[Side, Judged]):
    """The code pairs of ``tuimon explain``: the rule fires before, not after; both compute the same. (8 minutes)"""

    columns = (
        Column("", 5, lambda row: "right" if row.is_right else "WRONG"),
        Column("pair", 24, lambda row: row.side.pair),
        Column("side", 6, lambda row: row.side.when),
        Column("finding", 60, lambda row: row.finding.headline if row.finding else row.fault),
    )

    def cases(self, args: argparse.Namespace) -> Sequence[Side]:
        return all_sides()

    def judged(self, case: Side, args: argparse.Namespace) -> Iterator[Judged]:
        from tests.truth.pair_results import result_fault

        log = args.folder / f"{case.name}.jsonl"
        if case.is_recorded and not log.exists():
            run_program(case, log)
        fault = result_fault(case) if case.when == "after" else None
        yield Judged(case, case.finding(case.records(log)), log, fault)

    def is_recorded(self, case: Side) -> bool:
        return not case.is_recorded or case.log.exists()

    def record(self, case: Side, rows: Sequence[Judged], args: argparse.Namespace) -> None:
        for row in rows:
            if case.is_recorded:
                keep(case, row.log)

    def totals(self, rows: Sequence[Judged]) -> list[str]:
        return [f"right {of(row.is_right for row in rows)}"]

    def passed(self, rows: Sequence[Judged]) -> bool:
        return all(row.is_right for row in rows)


def all_sides() -> list[Side]:
    """In the order of the pages."""
    return [
        Side(page.rule, number, when, code)
        for page in all_pages()
        for number, code in enumerate(page.code)
        for when in ("before", "after")
    ]


def run_program(side: Side, log: Path) -> None:
    """Record it, in a folder and with names that say nothing of this machine. Raises Failed."""
    folder, rule = log.parent / side.name, side.rule
    folder.mkdir(exist_ok=True)
    script, raw = folder / "train.py", folder / "run.jsonl"
    script.write_text(side.program)
    shutil.copy(PROGRAMS / "course.py", folder)
    seconds = _SECONDS.get(rule, 9.0)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if rule in _RANKS else []
    command = [*under_tuimon(raw, "--no-gpu"), sys.executable, *launcher, str(script)]
    options = {"cwd": folder, "env": {**os.environ, "PAIR_SECONDS": str(seconds), "PYTHONPATH": str(ROOT)}}
    if rule == "hang":
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with started(command, **quiet, **options) as process, contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    else:
        finished(command, seconds + 60, **options)
    if not raw.exists():
        raise Failed("there is no log")
    text = raw.read_bytes()
    names = {str(folder): "/home/me", str(ROOT): "/opt/tuimon", sys.prefix: "/usr", sys.base_prefix: "/usr"}
    names |= {
        str(Path(sys.executable).resolve().parents[1]): "/usr",
        f'"host":"{socket.gethostname()}"': '"host":"host"',
    }
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name.encode(), names[name].encode())
    log.write_bytes(_without_end(text) if rule in _OF_THE_MOMENT else text)


def keep(side: Side, log: Path) -> None:
    """Its log for the tests, in place of those of earlier code."""
    for old in LOGS.glob(f"{side.name}.*"):
        old.unlink()
    (LOGS / side.log.name).write_bytes(gzip.compress(log.read_bytes(), mtime=0))


def _without_end(text: bytes) -> bytes:
    """Up to two seconds before the run's end: who stands still or holds the GIL is judged while it does."""
    lines = text.splitlines(keepends=True)
    ends_s = [each["t"] for line in lines if (each := msgspec.json.decode(line))["type"] == "exit"]
    return b"".join(line for line in lines if not ends_s or msgspec.json.decode(line)["t"] < ends_s[0] - 2.0)


_SIMULATED_S = 8.0
#: A frame of the simulated program -> what its line has in it, one or another.
_LINES = {
    FETCH: ("for ",),
    TO_DEVICE: (".to(",),
    FORWARD: ("model(",),
    BACKWARD: (".backward(",),
    STEP: ("optimizer.step(",),
    ITEM: (".item(", "[mask]"),
}
#: Rule -> the loop of ``tests/scenarios`` that is the same, with and without its fault.
_STREAMS = {
    "launch_bound": "small kernels",
    "sync_point": "item() every step, work after it",
    "transfer_bound": "pageable copies",
}
Samples = Iterable[tuple[list[int], int]]


def _of_stream(side: Side) -> list[Record]:
    stream = next(each for each in STREAMS if each.name == _STREAMS[side.rule])
    masks = "mask" in side.text
    if side.when == "before":
        return _training(_masked if masks else stream.step, _frames(side.text), stream.samples)
    assert stream.fixed is not None
    fixed = partial(_masked, wait=False) if masks else stream.fixed
    return _training(fixed, _frames(side.text), [*USUAL, ([FETCH], 5)])


def _masked(run: Training, wait: bool = True) -> None:
    """The loss is of some of the values, whose number the CPU waits for: then it launches what the GPU waits for."""
    run.fetch(0.5 * MS, 0.1)
    run.kernels(80, 40 * US, 30 * US)
    if wait:
        run.stream.launch(2 * US)
        run.stream.synchronise()
    run.cpu.work(2 * MS, 0.1)
    run.backward(lambda: run.kernels(120, 60 * US, 25 * US))
    run.step(lambda: run.kernels(30, 40 * US, 20 * US))


def _frames(code: str) -> Frames:
    """The simulated program's frames, its lines those of the code; a line that the code lacks is in none."""
    rows = list(LINES.frames)
    for number, parts in _LINES.items():
        lines = enumerate(code.splitlines(), 1)
        found = next(((n, text) for n, text in lines if any(part in text for part in parts)), (0, ""))
        rows[number] = Frame("/home/me/train.py", found[0], "main", found[1].strip(), True)
    return msgspec.structs.replace(LINES, frames=rows)


def _training(step: Step, lines: Frames, samples: Samples, *facts: Record, **figures: object) -> list[Record]:
    """A loop's records: its steps and GPU times, samples of these frames, threads, NVML's figures with ``figures``."""
    simulated, _, busy = simulate(step, _SIMULATED_S)
    begun_s = simulated[0].t - 1.0
    known = [(ids, n) for ids, n in samples if all(lines.frames[i].line for i in ids)]
    seen = {"util": round(busy, 3), "pcie_rx_bytes_per_s": 2e9} | figures
    return [
        header(pid=PID, cpu_count=8, t=begun_s),
        lines,
        *(facts or [process(PID, t=begun_s, torch="2.13.0+cu130", gpu_uuids=[UUID])]),
        *beside_steps(simulated, seen.pop("util"), *known, cpu_ratio=1.0, **seen),
    ]


def _busy(*facts: Record, **figures: object) -> list[Record]:
    """A training whose GPU is the bottleneck."""
    return _training(loops.gpu_bound, LINES, USUAL, *facts, **{"util": 0.99, **figures})


def _precision(when: When) -> list[Record]:
    """The use of the GPU's tensor cores in float32, and under autocast with TF32."""
    low = when == "after"
    reported = process(PID, torch="2.13.0+cu130", gpu_uuids=[UUID], parameter_dtypes=["float32"], tf32=low)
    return _busy(reported, tensor_ratio=0.35 if low else 0.0)


def _retries(when: When) -> list[Record]:
    """torch's allocator, which has to try again, and later need not."""
    records = _busy()
    end_s = records[-1].t
    counts = (4, 7) if when == "before" else (0, 0)
    return records + [
        TorchMemory(t=end_s + 6 + n, pid=PID, device=0, allocated_bytes=70, reserved_bytes=78, alloc_retries=count)
        for n, count in enumerate(counts)
    ]


def _room(when: When) -> list[Record]:
    """Without GPU times, which would tell more: a GPU that is used for a third, then for most of the time."""
    used = {"util": 0.3, "memory_used_bytes": 8 << 30} if when == "before" else {"util": 0.9}
    return [record for record in _training(loops.queue_full, LINES, USUAL, **used) if not isinstance(record, GpuTime)]


def _others(when: When) -> list[Record]:
    """Another program's share of the GPU that the training is on."""
    ours, other = GpuProcess(PID, 1 << 30, 0.5), GpuProcess(9, 1 << 30, 0.4)
    return _busy(processes=[ours, other] if when == "before" else [ours])


def _on_gpu(_when: When) -> list[Record]:
    """The same training with its work on a GPU."""
    return _busy()


_FACTS: dict[str, Callable[[When], list[Record]]] = {
    "low_precision_unused": _precision,
    "allocator_retries": _retries,
    "small_batch": _room,
    "neighbour": _others,
    "compute_bound_cpu": _on_gpu,
}
