"""Labelled programs: scripts whose comments tell what tuimon should report, and the experiment that runs them.

``# expects: RULE/CAUSE`` (or several, with ``or`` between them) or ``# healthy`` labels a script, ``# <- cause`` ends
the lines of which one must be named, ``# launch: torchrun N`` starts ranks, ``# package: NAME`` needs one beside torch,
``# missed: REASON`` says why tuimon is not right yet. Causes (``causes.py``) have further labels. In a script of
several programs ``# program: NAME`` stands before the labels of each; that name is the script's first argument.
"""

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import structs

from tests.truth import judging
from tests.truth.judging import LOUD, Judgement, Label, fold, judge, of_best_fix, of_cheaper_line
from tests.truth.kind import Column, Kind, marked, of, whole_seconds
from tests.truth.running import attached, gained_by, watched
from tuimon.diagnosis.finding import Finding

TESTS = Path(__file__).parents[1]
SCRIPTS = TESTS / "scenarios" / "scripts"
WILD = TESTS / "wild" / "programs"
_LABEL = re.compile(r"^# (expects|healthy|launch|package|missed|category|says|gpus|seconds)(?:: (.*))?$", re.MULTILINE)
_PROGRAM = re.compile(r"^# program: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """A script and its truth."""

    name: str
    path: Path
    rules: tuple[str, ...] = ()  # rule or rule/cause: any of these may be first; none: healthy
    blamed: frozenset[int] = frozenset()  # of these lines one must be named; none: no line is to blame
    ranks: int = 0  # 0: a plain script
    package: str = ""
    missed: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)  # all that it has
    as_it_is: tuple[str, ...] = ()  # arguments
    fixed: tuple[str, ...] | None = None  # the same of its fixed form; None: it has none
    predicted: Callable[[Finding], float | None] = of_best_fix
    measured: float | None = None  # what the fix gains

    @property
    def expected(self) -> str:
        return " or ".join(self.rules) or "healthy"

    @property
    def is_healthy(self) -> bool:
        """True if nothing has to be reported."""
        return not self.rules

    @property
    def experiment(self) -> str:
        """The kind of experiment that it is for."""
        if "category" in self.labels:
            return "causes"
        return "leaks" if self.expected.startswith("memory_pressure") else "scenarios"

    @property
    def is_installed(self) -> bool:
        """True if the package that it needs is there."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def command(self, seconds: float, *, fixed: bool = False) -> list[str]:
        launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={self.ranks}"] if self.ranks else []
        arguments = (self.fixed or ()) if fixed else self.as_it_is
        return [sys.executable, *launcher, str(self.path), f"--seconds={seconds:g}", *arguments]

    def is_right(self, finding: Finding | None) -> bool:
        """True if this may be the first finding."""
        if self.is_healthy:
            return finding is None or finding.severity not in LOUD
        return finding is not None and (finding.rule in self.rules or finding.name in self.rules)

    def is_false(self, finding: Finding) -> bool:
        """True for any warning about a healthy program."""
        return self.is_healthy and finding.severity in LOUD

    def lines(self, finding: Finding | None) -> frozenset[tuple[str, int]]:
        """Those to blame, whatever was found."""
        return frozenset((self.path.name, line) for line in self.blamed)

    def gains(self, finding: Finding | None) -> tuple[float | None, float | None]:
        return (None if finding is None or self.is_healthy else self.predicted(finding)), self.measured


def read(path: Path) -> Iterator[Program]:
    """The programs of a script, from their labels; none if it has no label, as what programs share."""
    text = path.read_text()
    names = list(_PROGRAM.finditer(text))
    ends = [name.start() for name in names[1:]] + [len(text)]
    for number, name in enumerate(names):
        yield _program(path, name[1], text[: ends[number]], name.start(), (name[1],))
    if not names and _LABEL.search(text):
        yield _program(path, path.stem, text)


def _program(path: Path, name: str, text: str, begin: int = 0, arguments: tuple[str, ...] = ()) -> Program:
    """That of the text from ``begin`` on."""
    own = text[begin:]
    labels = {match[1]: match[2] or "" for match in _LABEL.finditer(own)}
    assert ("expects" in labels) != ("healthy" in labels), f"{name}: neither expects something nor is healthy"
    lines = enumerate(own.splitlines(), 1 + text.count("\n", 0, begin))
    return Program(
        name,
        path,
        rules=tuple(labels["expects"].split(" or ")) if "expects" in labels else (),
        blamed=frozenset(n for n, line in lines if line.endswith("# <- cause")),
        ranks=int(labels["launch"].removeprefix("torchrun ")) if "launch" in labels else 0,
        package=labels.get("package", ""),
        missed=labels.get("missed", ""),
        labels=labels,
        as_it_is=arguments,
        fixed=(*arguments, "--fixed") if "args.fixed" in own else None,
    )


def labelled(folder: Path = SCRIPTS, experiment: str = "") -> dict[str, Program]:
    """The programs of a folder by name: all, or those of one kind of experiment."""
    programs = (program for path in sorted(folder.glob("*.py")) for program in read(path))
    return {program.name: program for program in programs if experiment in ("", program.experiment)}


def wild() -> dict[str, Program]:
    """The programs on public frameworks: each with its slow work, and without it."""
    found: dict[str, Program] = {}
    for name, program in labelled(WILD).items():
        planted = replace(program, as_it_is=("--planted",), fixed=(), predicted=of_cheaper_line)
        well = replace(program, name=f"{name}_healthy", rules=(), blamed=frozenset(), fixed=None)
        found |= {name: planted, well.name: well}
    return found


class Programs(Kind[Program, Judgement]):
    """Labelled programs under tuimon: the verdict, its line, phases, gain, and how soon it is right."""

    columns = judging.COLUMNS

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_options(parser)

    def cases(self, args: argparse.Namespace) -> Sequence[Program]:
        programs = [program for program in self.programs().values() if program.is_installed]
        if missing := sorted({program.package for program in self.programs().values() if not program.is_installed}):
            print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return programs

    def programs(self) -> dict[str, Program]:
        """All by name, whether they can run or not."""
        raise NotImplementedError

    def names(self) -> Iterable[str]:
        return self.programs()

    def judged(self, case: Program, args: argparse.Namespace) -> Iterator[Judgement]:
        yield tried(case, args)

    def totals(self, rows: Sequence[Judgement]) -> list[str]:
        return judging.totals(rows)


class Wild(Programs):
    """Programs on public frameworks, healthy and slowed: is the verdict right? (40 minutes)"""

    seconds = 12.0

    def programs(self) -> dict[str, Program]:
        return wild()


def tried(program: Program, args: argparse.Namespace) -> Judgement:
    """A program under tuimon, without its fault, and with tuimon joining it later. Raises Failed."""
    seconds, folder = args.seconds, args.folder
    outcome = watched(program.name, program.command(seconds), folder)
    if args.gain and program.fixed is not None:
        fixed = program.command(seconds / 3, fixed=True)
        gained = gained_by(program.name, program.command(seconds / 3), {"fixed": fixed}, folder)
        program = replace(program, measured=gained["fixed"])
    return with_attached(program, judge(program, outcome), program.command, args)


def with_attached(
    label: Label, found: Judgement, command: Callable[[float], Sequence[str]], args: argparse.Namespace
) -> Judgement:
    """The judgement with that of a run in whose middle tuimon attaches, if it is asked for. Raises Failed."""
    if not args.attach:
        return found
    outcome = attached(label.name, command, args.seconds, args.folder)
    return structs.replace(found, attached=judge(label, outcome))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of all programs that are watched."""
    parser.add_argument("--no-gain", dest="gain", action="store_false", help="do not measure what fixes gain")
    parser.add_argument("--attach", action="store_true", help="attach to a second run of each: the same verdict?")


class LeakRow(msgspec.Struct):
    """A leak, and its healthy twin: a row of docs/internals/accuracy.md."""

    name: str
    found: str  # the latest while it trained: "memory_pressure/growing (info)"
    right: bool
    place: str
    place_right: bool
    named_s: float | None  # from the first step
    false: tuple[str, ...]  # about memory, in the twin


class Leaks(Programs):
    """Planted leaks, and the same trainings without them: is each named, with its line? (16 minutes)"""

    seconds = 35.0
    keeps = ("leaks.jsonl", LeakRow)
    columns: ClassVar = (
        Column("program", 20, lambda row: row.name),
        Column("found", 36, lambda row: marked(row.found, row.right)),
        Column("place", 26, lambda row: marked(row.place, row.place_right)),
        Column("after", 6, lambda row: whole_seconds(row.named_s)),
        Column("false, without the leak", 30, lambda row: ", ".join(row.false)),
    )

    def programs(self) -> dict[str, Program]:
        return labelled(experiment="leaks")

    def judged(self, case: Program, args: argparse.Namespace) -> Iterator[LeakRow]:
        leak = fold(watched(case.name, case.command(args.seconds), args.folder).log)
        name = f"{case.name}_fixed"
        twin = fold(watched(name, case.command(args.seconds, fixed=True), args.folder).log)
        told = [(s, each) for s, findings in leak.moments for each in findings if each.rule == "memory_pressure"]
        found = told[-1][1] if told else None
        places = [(place.file.rpartition("/")[2], place.line) for place in found.where] if found is not None else []
        false = [each for _, findings in twin.moments for each in findings if each.rule == "memory_pressure"]
        yield LeakRow(
            case.name,
            f"{found.name} ({found.severity})" if found is not None else "",
            found is not None and case.is_right(found),
            "{}:{}".format(*places[0]) if places else "",
            not case.blamed or (bool(places) and places[0] in case.lines(found)),
            told[0][0] if told else None,
            tuple(dict.fromkeys(each.name for each in false)),
        )

    def totals(self, rows: list[LeakRow]) -> list[str]:  # type: ignore[override]  # its rows are no judgements
        return [
            f"named           {of(row.right for row in rows)}",
            f"with its line   {of(row.right and row.place_right for row in rows)}",
            f"false alarms    in {of(bool(row.false) for row in rows)} trainings without a leak",
        ]


class Scenarios(Programs):
    """Labelled trainings on a CPU: is the verdict right? (40 minutes; ``make accuracy`` keeps what comes of it.)"""

    keeps = ("accuracy.jsonl", Judgement)

    def programs(self) -> dict[str, Program]:
        return labelled(experiment="scenarios")
