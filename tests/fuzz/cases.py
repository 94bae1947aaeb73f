"""Cases: each under a clock, its failures counted by the place they come from."""

import asyncio
import contextlib
import faulthandler
import gc
import io
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator

import msgspec

from bench.metrics_cost import text_of
from tests.fuzz.hostile import CONTROLS, TYPES, made, with_hostile_strings
from tests.fuzz.lines import damage_one, damaged, seed_log, seed_nodes
from tests.fuzz.rings import damaged_ring, read_ring
from tests.views.playback import Playback
from tests.views.tui.running_app import running, screen_lines
from tuimon.cli.commands import diff, export, report
from tuimon.diagnosis.judging import diagnose
from tuimon.errors import TuimonError
from tuimon.records import AnyRecord, Header
from tuimon.session.session import Session
from tuimon.sources.log.reader import decode
from tuimon.sources.log.source import read_records
from tuimon.sources.plain_records import plain_record
from tuimon.views.headless import HeadlessView
from tuimon.views.prometheus import RankLabels, take

#: CPU time of one output, so that a busy machine makes no hang.
HANG_S = 5.0
#: A case that waits, or that the signal of a hang cannot end (inside C code), ends the process, with its stack printed.
KILL_S = 60
#: Lines damaged in one log, and hostile strings chosen for one.
_LINES, _STRINGS = 20, 20
#: The full screen takes most of the time: one log of so many is shown there.
_SCREENS = 10


class Hang(BaseException):
    """A case has taken longer than HANG_S."""


class Findings:
    """Counts what went wrong; the first of each place is printed."""

    def __init__(self) -> None:
        self.cases = 0
        self.places: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, place: str, case: str, detail: str = "") -> None:
        self.places[kind, place] += 1
        if self.places[kind, place] == 1:
            print(f"{kind}: {place}  [{case}] {detail}"[:400], flush=True)

    @contextlib.contextmanager
    def case(self, name: str) -> Iterator[None]:
        """One case: a traceback or a hang is counted, not raised."""
        self.cases += 1
        print(f"\r{name:24}", end="", file=sys.__stderr__, flush=True)  # if it ends the process, this is how one knows
        signal.signal(signal.SIGPROF, _raise_hang)
        _begin_output()
        faulthandler.dump_traceback_later(KILL_S, exit=True)
        try:
            yield
        except Hang as error:
            self.add("hang", _place(error), name)
        except Exception as error:  # noqa: BLE001  (whatever a view raises is a finding)
            self.add("traceback", _place(error), name, f"{type(error).__name__}: {error}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            faulthandler.cancel_dump_traceback_later()

    def check(self, view: str, text: str, case: str) -> None:
        """An output without control characters is as it must be."""
        found = CONTROLS.search(text)
        if found is not None:
            around = text[max(0, found.start() - 40) : found.end() + 20]
            self.add("controls", f"{view} {found.group()!r}", case, ascii(around))

    @property
    def memory_mb(self) -> float:
        """The most that this process has taken; getrusage counts what its parent held when it was forked."""
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))

    def summary(self) -> str:
        counts = Counter[str]()
        for (kind, _), number in self.places.items():
            counts[kind] += number
        return (
            f"{self.cases} cases: {counts['traceback']} tracebacks, {counts['hang']} hangs over {HANG_S:.0f} s, "
            f"{counts['controls']} outputs with control characters, {self.memory_mb:.0f} MB at most"
        )


def run_lines(findings: Findings, count: int, seed: int) -> None:
    """Logs with ``count`` damaged lines in all, through every view."""
    log = seed_log()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a\x9b\u202eb.jsonl")  # what a log is called is outside text as well
        for number, rng in _drawn(seed, "lines", count, _LINES):
            _write(path, damaged(log, rng, min(_LINES, count)))
            _show(findings, path, f"lines {number}", screen=number % _SCREENS == 0)


def run_nodes(findings: Findings, count: int, seed: int) -> None:
    """Folders of a run on three nodes with ``count`` damaged lines in all, through every view."""
    with tempfile.TemporaryDirectory() as made_in, tempfile.TemporaryDirectory() as folder:
        logs = seed_nodes(made_in)
        for number, rng in _drawn(seed, "nodes", count, _LINES):
            whole = {name: list(lines) for name, lines in logs.items()}
            for _ in range(min(_LINES, count)):
                damage_one(rng.choice(list(whole.values())), rng)
            for name, lines in whole.items():
                _write(os.path.join(folder, name), lines)
            _show(findings, folder, f"nodes {number}", screen=number % _SCREENS == 0)


def run_strings(findings: Findings, count: int, seed: int) -> None:
    """``count`` hostile strings, a few in each log, over every field of every type of record, through every view."""
    log = [msgspec.json.decode(line, type=AnyRecord) for line in seed_log()]
    header = next(record for record in log if isinstance(record, Header))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log.jsonl")
        for number, rng in _drawn(seed, "strings", count, _STRINGS):
            lines = [with_hostile_strings(header, rng, 1.0)]
            lines += [with_hostile_strings(record, rng) for record in log[1:]]
            lines += [msgspec.json.encode(made(kind, rng)) for kind in TYPES]
            _write(path, lines)
            _show(findings, path, f"strings {number}", screen=number % 4 == 0)


def _drawn(seed: int, kind: str, count: int, each: int = 1) -> Iterator[tuple[int, random.Random]]:
    """So many cases, ``each`` to a log, by their numbers."""
    return ((number, random.Random(f"{seed} {kind} {number}")) for number in range(-(-count // each)))


def run_rings(findings: Findings, count: int, seed: int) -> None:
    """Damaged rings through the reader; their records through the views, a few rings at a time."""
    header = msgspec.json.encode(made(Header, random.Random(seed)))
    with tempfile.TemporaryDirectory() as where:
        ring, log = os.path.join(where, "1-1.ring"), os.path.join(where, "log.jsonl")
        lines: list[bytes] = []
        for number, rng in _drawn(seed, "rings", count):
            damaged_ring(ring, rng)
            with findings.case(f"rings {number}"):
                records = read_ring(ring, rng)
                for record in records:
                    lines.append(msgspec.json.encode(plain_record(record)))
                    if decode(lines[-1]) is None:  # what the monitor records, it can read back
                        findings.add(
                            "traceback", f"unreadable {type(record).__name__}", f"rings {number}", repr(record)
                        )
            if number % 50 == 49 or number == count - 1:
                _write(log, [header, *lines])
                _show(findings, log, f"rings {number - 49} to {number}", screen=number % 1000 == 49)
                lines = []


def _show(findings: Findings, path: str, name: str, *, screen: bool) -> None:
    for view in (commands, headless, metrics, *([screens] if screen else [])):
        with findings.case(name):
            try:
                for output, text in view(path):
                    findings.check(output, text, name)
                    _begin_output()
            except TuimonError as error:
                findings.check(view.__name__, str(error), name)


def _write(path: str, lines: list[bytes]) -> None:
    with open(path, "wb") as file:
        file.writelines(line + b"\n" for line in lines)


def _begin_output() -> None:
    signal.setitimer(signal.ITIMER_PROF, HANG_S)


def _raise_hang(*_: object) -> None:
    raise Hang


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/tuimon/" in frame.filename] or frames[-1:]
    last = ours[-1]
    return f"{last.filename.rpartition('/tuimon/')[2]}:{last.lineno} {last.name}"


REPORTS = ("text", "json", "html")
DIFFS = ("text", "json")
EXPORTS = ("perfetto", "speedscope", "collapsed")
_KEYS = (
    *("v", "enter", "escape", "escape", "question_mark", "escape", "h", "c", "i", "enter", "escape", "2", "s"),
    *("r", "s", "enter", "escape", "S", "escape", "m", "escape"),
)


def commands(path: str) -> Iterator[tuple[str, str]]:
    """(name, output) of each report and export of a log; an error for the user is an output as well."""
    for name in REPORTS:
        yield f"report {name}", _run(report.main, [path, "--format", name])
    yield "report brief", _run(report.main, [path, "--format", "json", "--brief"])
    for name in DIFFS:
        yield f"diff {name}", _run(diff.main, [path, path, "--anyway", "--format", name])
    for name in EXPORTS:
        yield f"export {name}", _run(export.main, [path, "--to", name])
    yield "export of a phase", _run(export.main, [path, "--to", "collapsed", "--phase", "data"])


def headless(path: str) -> Iterator[tuple[str, str]]:
    """The lines of a headless run over the log, one for each hundred records, and its summary."""
    out = io.StringIO()
    view, session = HeadlessView(out), Session()
    for number, record in enumerate(read_records(path)):
        session.add(record)
        if number % 100 == 0:
            view.show(session, ())
    findings = diagnose(session)
    view.show(session, findings)
    view.summary(session, findings, path)
    yield "headless", out.getvalue()


def metrics(path: str) -> Iterator[tuple[str, str]]:
    """The log's last figures as Prometheus reads them."""
    session = Session()
    for record in read_records(path):
        session.add(record)
    yield "metrics", text_of(take(session, diagnose(session), RankLabels())).decode()


def screens(path: str) -> Iterator[tuple[str, str]]:
    """What the full screen shows of the log, after each of some keys."""
    monitor = Playback(list(read_records(path)))
    monitor.findings = list(diagnose(monitor.session))
    yield "screen", asyncio.run(_pressed(monitor))


async def _pressed(monitor: Playback) -> str:
    out: list[str] = []
    async with running(monitor, (120, 40)) as (app, pilot):
        for key in ("", *_KEYS):
            _begin_output()
            if key:
                await pilot.press(key)
            app.tick()
            await pilot.pause()
            out += screen_lines(app)
        out.append(app.export_screenshot())
    return "\n".join(out)


def _run(main, words) -> str:  # a command's ``main``
    out, collecting = io.StringIO(), gc.get_threshold()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(words)
        except TuimonError as error:
            out.write(f"{error.message}\n{error.hint or ''}")
        finally:  # a command collects garbage as suits a process of its own, which ends with it
            gc.set_threshold(*collecting)
    return out.getvalue()
