"""The causes of low GPU utilization that a study of 400 jobs counts: is each told by name, and silent without it?

The study: Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs, ICSE 2024. Its programs have a
``# category:``; beside rules, ``# expects:`` names ``goodput/PART``, ``no torch`` and ``unseen``, a program that works
and makes no step; ``# says: TEXT`` is in the headline or a fix; ``# gpus: N`` are shown by a fake NVML, ``given`` by
CUDA_VISIBLE_DEVICES; ``# seconds: N`` is how long it takes.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec

from bench.gpu import program_runs
from tests.diagnosis.gpu import FETCH, USUAL
from tests.fake_nvml import Scenario, usual
from tests.recorded_logs import log_path
from tests.scenarios.streams import STREAMS, Stream, write
from tests.truth.judging import LOUD, own_place
from tests.truth.kind import Column, Kind, marked
from tests.truth.pairs import all_sides
from tests.truth.programs import Program, labelled
from tests.truth.running import recorded
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.verdicts import fold
from tuimon.records import Record
from tuimon.session.state import goodput, run_state, unseen_trainings
from tuimon.sources.log.source import read_records
from tuimon.threshold import REPORTED

#: By cause: its share of the study's issues in percent, and the programs of other experiments that have it.
CAUSES: dict[str, tuple[float, tuple[str, ...]]] = {
    "host-GPU transfer": (27.9, ("pageable copies", "copies field by field", "copies by hand", "pageable_images")),
    "batch size": (25.6, ("small kernels", "small_batch_0", "compiled")),
    "checkpoints": (16.4, ("checkpoint_every_step", "side_work_0")),
    "exchange between GPUs": (7.1, ("big_gradients", "comm_bound_0")),
    "preprocessing": (4.0, ("photos_without_workers", "input_bound_1", "input_bound_2")),
    "memory too small": (3.1, ("cache_of_images", "allocator_retries_0", "memory given back")),
    "remote reads": (2.6, ()),
    "calls to outside": (2.6, ("side_work_2",)),
    "API misuse": (2.3, ()),
    "interactive": (2.1, ()),
    "uploads": (2.0, ()),
    "long installation": (1.7, ()),
    "job that does not end": (1.3, ()),
    "more GPUs than used": (0.9, ()),
    "no deep learning": (0.6, ()),
}
#: What tells a cause that shares its rule with another one.
_SAYS = {"batch size": "as large"}


class Case(NamedTuple):
    """A program with its fault, and without it: ``records(fixed, args)``, None where nobody has recorded that."""

    category: str
    name: str
    program: Program
    evidence: str
    records: Callable[[bool, argparse.Namespace], Iterable[Record] | None]


class Told(msgspec.Struct, frozen=True):
    """What was reported of both."""

    category: str
    name: str
    evidence: str
    told: str  # "" if it was not told by name
    place: str
    place_right: bool | None  # None: no line is to blame
    false: tuple[str, ...] | None  # of the twin; None: it has none


def all_cases() -> Iterator[Case]:
    """In the order of the study."""
    scripts = labelled()
    streams = {stream.name: stream for stream in STREAMS}
    sides = {(side.pair, side.when): side for side in all_sides()}
    for category, (_, others) in CAUSES.items():
        for name in (*others, *(name for name in scripts if scripts[name].labels.get("category") == category)):
            program = Program(name, Path(f"{name}.py"))
            if name in scripts:
                program = scripts[name]
                evidence = "CPU run, fake NVML" if "gpus" in program.labels else "CPU run"
                yield Case(category, name, program, evidence, partial(_of_script, program))
            elif name in streams:
                yield Case(category, name, streams[name].program(), "simulated GPU", partial(_of_stream, streams[name]))
            elif (name, "before") in sides:
                before, after = sides[name, "before"], sides[name, "after"]
                program = replace(program, rules=("/".join(filter(None, (before.rule, before.code.cause))),))
                evidence = "CPU run" if before.is_recorded else "simulated GPU"
                yield Case(
                    category, name, program, evidence, lambda fixed, _, b=before, a=after: (a if fixed else b).records()
                )
            else:
                program = replace(program, rules=tuple(program_runs.expected(name).split(" or ")))
                log = log_path(f"h100_{name}")
                yield Case(
                    category,
                    name,
                    program,
                    "H100 log",
                    lambda fixed, _, log=log: None if fixed else read_records(str(log)),
                )


def _of_script(program: Program, fixed: bool, args: argparse.Namespace) -> Iterable[Record]:
    log = args.folder / f"{program.name}{'_fixed' if fixed else ''}.jsonl"
    command = program.command(float(program.labels.get("seconds", args.seconds)), fixed=fixed)
    number, *given = program.labels.get("gpus", "0").split()
    indices, env = range(int(number)), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        if indices:
            scenario = Scenario(Path(folder))
            scenario.set({"devices": number, "driver": "580.65.06"})
            for index in indices:
                scenario.set(**usual(index) | {f"gpu{index}_{key}": 0 for key in ("util", "memory_used_mib")})
            env |= scenario.environment | ({"CUDA_VISIBLE_DEVICES": ",".join(map(str, indices))} if given else {})
        recorded(log, command, env=env)
    return read_records(str(log))


def _of_stream(stream: Stream, fixed: bool, args: argparse.Namespace) -> Iterable[Record]:
    assert stream.fixed is not None
    log = args.folder / f"{stream.name}.jsonl"
    write(replace(stream, step=stream.fixed, samples=(*USUAL, ([FETCH], 5))) if fixed else stream, log, args.seconds)
    return list(read_records(str(log)))


class Causes(Kind[Case, Told]):
    """Causes of low GPU utilization, as a study counts them: is each told by name, and only then? (40 minutes)"""

    seconds = 12.0
    keeps = ("causes.jsonl", Told)
    columns: ClassVar = (
        Column("cause", 22, lambda row: row.category),
        Column("program", 26, lambda row: row.name),
        Column("evidence", 18, lambda row: row.evidence),
        Column("told", 30, lambda row: marked(row.told, bool(row.told))),
        Column("place", 32, lambda row: marked(row.place, row.place_right)),
        Column("without it", 30, lambda row: None if row.false is None else ", ".join(row.false) or "silent"),
    )

    def cases(self, args: argparse.Namespace) -> Sequence[Case]:
        return list(all_cases())

    def judged(self, case: Case, args: argparse.Namespace) -> Iterator[Told]:
        names, twin = _names(case.records(False, args) or ()), case.records(True, args)
        program, says = case.program, case.program.labels.get("says", _SAYS.get(case.category, ""))
        name = next((each for each in program.rules if each in names and _says(names[each], says)), "")
        found, without = names.get(name), _names(twin or ())
        place, lines = own_place(found), program.lines(found)
        false = {each for each, it in without.items() if it and it.severity in LOUD and it.rule != "neighbour"}
        false |= {each for each in program.rules if each in without and _says(without[each], says)}
        yield Told(
            *case[:2],
            case.evidence,
            told=(found.name if found is not None else name) if name else "",
            place="{}:{}".format(*place) if place else "",
            place_right=place in lines if lines else None,
            false=tuple(sorted(false)) if twin is not None else None,
        )

    def names(self) -> Iterable[str]:
        return (case.name for case in all_cases())


def _says(finding: Finding | None, text: str) -> bool:
    said = (finding.headline, *(fix.action for fix in finding.fixes)) if finding is not None else ("",)
    return any(text in each for each in said)


def _names(records: Iterable[Record]) -> dict[str, Finding | None]:
    """What a report names: findings, and what belongs to no step."""
    session, findings = fold(records)
    names: dict[str, Finding | None] = {}
    for finding in reversed(findings):
        names |= {finding.rule: finding, finding.name: finding}
    spent = goodput(session)
    if spent is not None:
        names |= {f"goodput/{part}": None for part, s in spent.parts.items() if s >= REPORTED * spent.total_s}
    if unseen_trainings(session):
        names["unseen"] = None
    if "never imported torch" in (run_state(session).doing or ""):
        names["no torch"] = None
    return names
