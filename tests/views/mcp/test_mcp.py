"""``tuimon mcp``: each tool by the protocol's own client."""

from __future__ import annotations

import gzip
import os
import re
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.fleet_logs import Job, write
from tests.fuzz.hostile import CONTROLS
from tests.test_import_hygiene import loaded_by
from tuimon.cli.commands.explain import rule_named
from tuimon.diagnosis.rulebook import RULES
from tuimon.errors import NoSuchProcess, UsageError
from tuimon.launch.candidates import Candidate
from tuimon.monitor.opening import open_log
from tuimon.proc.ring_facts import RingFacts
from tuimon.views.mcp import opened
from tuimon.views.mcp import server as server_module
from tuimon.views.mcp.limits import MOST_CHARACTERS, bounded
from tuimon.views.mcp.opened import Seen, Trainings
from tuimon.views.mcp.server import server
from tuimon.views.mcp.tools import Tools

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["trainings", "verdict", "evidence", "hot_lines", "stacks", "diff", "explain"]
PID = 4242


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "run.jsonl"
    path.write_bytes(gzip.decompress((ROOT / "tests/data/logs/demo_slow_loader.jsonl.gz").read_bytes()))
    return str(path)


@pytest.fixture
def trainings():
    made = Trainings()
    yield made
    made.close()


@asynccontextmanager
async def client(trainings: Trainings) -> AsyncIterator[Any]:
    mcp = pytest.importorskip("mcp")
    tools = Tools(trainings, lambda: ["     PID  COMMAND", "    4242  python train.py"], rule_named)
    async with mcp.Client(server(tools)) as connected:
        yield connected


async def answer(connected: Any, tool: str, **arguments: object) -> str:
    """The one text of an answer, which is within its bound."""
    result = await connected.call_tool(tool, arguments)
    (content,) = result.content
    assert not result.is_error, content.text
    assert len(content.text) <= MOST_CHARACTERS
    assert not CONTROLS.search(content.text.replace("\n", ""))
    return content.text


async def test_the_tools_say_what_they_are_for_and_that_they_change_nothing(trainings) -> None:
    async with client(trainings) as connected:
        tools = (await connected.list_tools()).tools
        assert [tool.name for tool in tools] == NAMES
        for tool in tools:
            assert tool.annotations.read_only_hint and not tool.annotations.destructive_hint
            assert len(tool.description) > 60 and tool.output_schema is None
        assert "4242" in await answer(connected, "trainings")


async def test_answers_about_a_log_have_numbers_units_and_places(trainings, log) -> None:
    async with client(trainings) as connected:
        verdict = await answer(connected, "verdict", training=log)
        assert verdict.startswith("slow_loader.py made 313 steps in 11s (median 21.3 ms")
        assert "  data: 61 %, 15.4 ms\n" in verdict
        assert "input_bound/slow_item (critical): 61 % of each step" in verdict
        assert re.search(r"\n  at \S+/demo/slow_loader\.py:30 augment\(\)\n", verdict)
        assert re.search(r"\n  fix: make augment\(\) .* \(\d\.\dx to \d\.\dx faster\)", verdict)
        evidence = await answer(connected, "evidence", training=log, rule="input-bound")
        assert "  data per step: 15.4 ms\n" in evidence and "  workers make batches: 95 % of the time\n" in evidence
        assert "not judged, the run" in await answer(connected, "evidence", training=log, rule="step_time_drift")
        assert await answer(connected, "evidence", training=log, rule="gc_pauses") == "gc_pauses: nothing found"
        lines = await answer(connected, "hot_lines", training=log, phase="backward", most=3)
        assert re.match(r"lines of the training thread in backward, by share of \d+ samples", lines)
        assert len(lines.splitlines()) <= 4
        stacks = await answer(connected, "stacks", training=log)
        assert re.search(r"(?m)^worker 0 \(pid \d+, thread \d+\): running, CPU 79 % of a core", stacks)
        assert "augment() warped[row] = np.convolve(" in stacks


async def test_answers_about_64_ranks_are_bounded_and_name_the_ranks(trainings, tmp_path) -> None:
    folder = str(tmp_path)
    write(folder, Job(nodes=8, ranks=8, seconds=5.0, workers=0, gpus=False, late=17))
    async with client(trainings) as connected:
        assert "64 ranks" in await answer(connected, "verdict", training=folder)
        assert "rank: 17" in await answer(connected, "evidence", training=folder, rule="straggler_rank")
        stacks = await answer(connected, "stacks", training=folder)
        heads = [line for line in stacks.splitlines() if line.startswith("main ")]
        assert sum(_main_threads(head) for head in heads) == 64


def _main_threads(head: str) -> int:
    found = re.match(r"main x (\d+) \(ranks ", head)
    return int(found[1]) if found else 1


async def test_two_logs_are_compared(trainings, log, tmp_path) -> None:
    async with client(trainings) as connected:
        same = await answer(connected, "diff", before=log, after=log)
        assert same.startswith("Cannot tell: between 1.12x slower and 1.12x faster") and " ms " in same
        result = await connected.call_tool("diff", {"before": log, "after": str(tmp_path / "none")})
        assert result.is_error and "none" in result.content[0].text


async def test_every_rule_is_explained_within_the_bound(trainings) -> None:
    async with client(trainings) as connected:
        for rule in RULES:
            page = await answer(connected, "explain", rule=rule.name)
            assert "What to do" in page
        page = await answer(connected, "explain", rule="input_bound")
        assert "Thresholds" in page and "explain one of no_workers, slow_item" in page
        rollout = await answer(connected, "explain", rule="rollout")
        assert "before:" in rollout and "envs.step(policy(states)" in rollout


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("verdict", {"training": "1"}, "no training of yours has the pid 1. The tool trainings lists them"),
        ("stacks", {"training": 1}, "no training of yours has the pid 1. The tool trainings lists them"),
        ("verdict", {}, "no training is named, and none of yours runs here. Give training: one of their pids"),
        ("verdict", {"training": " "}, "no training is named"),
        ("verdict", {"training": "/etc/passwd"}, "/etc/passwd is not a tuimon log"),
        ("verdict", {"training": "no such file"}, "no such file"),
        ("explain", {"rule": "launch_bond"}, "Did you mean launch_bound?"),
        ("verdict", {"path": "run.jsonl"}, "verdict takes no argument 'path'. It takes: training, seconds"),
        ("trainings", {"user": "me"}, "It takes: none"),
        ("hot_lines", {"training": "x", "phase": "sideways"}, "One of: data, forward"),
    ],
)
async def test_what_cannot_be_answered_says_why(trainings, tool, arguments, message, monkeypatch) -> None:
    monkeypatch.setattr(opened, "find_candidates", list)
    async with client(trainings) as connected:
        result = await connected.call_tool(tool, arguments)
        assert result.is_error and message in result.content[0].text
        assert "Traceback" not in result.content[0].text and "root:" not in result.content[0].text


LONG = "a" * 1_000_000


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("verdict", {"training": LONG}, "training has 1,000,000 characters, at most 4,096 are taken"),
        ("diff", {"before": "x", "after": LONG}, "after has 1,000,000 characters"),
        ("explain", {"rule": LONG}, "rule has 1,000,000 characters"),
        ("hot_lines", {"phase": LONG}, "phase has 1,000,000 characters"),
        ("verdict", {"training": "/nowhere/" * 400}, "the log /nowhere//nowhere"),
        ("explain", {"rule": "b" * 4000}, "tuimon explain lists the rules"),
        ("hot_lines", {"phase": "b" * 4000}, "One of: data, forward"),
        ("verdict", {LONG: 1}, "verdict takes no argument"),
        ("verdict", {f"a{number}": 1 for number in range(100)}, "'a4' and 95 more. It takes: training, seconds"),
        ("verdict", {"training": [LONG]}, "training is neither a text nor a number"),
        ("verdict", {"training": 10**4000}, "at most 18 digits"),
        ("verdict", {"training": "9" * 4000}, "999"),
        (LONG, {}, "There are: trainings, verdict"),
        ("verdict", {"training": "a\0b"}, "training has a NUL"),
        ("diff", {"before": "\0", "after": ""}, "before has a NUL"),
        ("explain", {"rule": "\0"}, "rule has a NUL"),
    ],
    ids=range(16),
)
async def test_what_is_asked_is_echoed_in_part_and_never_a_fault(
    trainings, tool, arguments, message, caplog: pytest.LogCaptureFixture
) -> None:
    async with client(trainings) as connected:
        result = await connected.call_tool(tool, arguments)
    text = result.content[0].text
    assert result.is_error and message in text
    assert len(text) <= 2500
    assert not [each for each in caplog.records if each.exc_info]


async def test_prompts_and_resources_are_refused_without_their_names(trainings) -> None:
    mcp = pytest.importorskip("mcp")
    async with client(trainings) as connected:
        for asked in (connected.get_prompt(LONG), connected.read_resource(f"x://{LONG}")):
            with pytest.raises(mcp.MCPError, match=r"^there are no (prompts|resources), only tools$"):
                await asked


async def test_calls_wait_for_their_turn_and_none_is_lost(trainings, monkeypatch) -> None:
    import anyio

    lock, inside, most = threading.Lock(), 0, 0
    entered = threading.Semaphore(0)
    leave = threading.Event()

    def query(*_asked: object) -> str:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        entered.release()
        leave.wait()
        with lock:
            inside -= 1
        return "answered"

    monkeypatch.setattr(trainings, "query", query)
    texts: list[str] = []

    async with client(trainings) as connected, anyio.create_task_group() as tasks:

        async def ask() -> None:
            texts.append((await connected.call_tool("verdict", {"training": "x"})).content[0].text)

        for _ in range(40):
            tasks.start_soon(ask)
        for _ in range(server_module._AT_ONCE):
            await anyio.to_thread.run_sync(entered.acquire)
        leave.set()
    assert most == server_module._AT_ONCE
    assert texts == ["answered"] * 40


def test_over_stdio_it_answers_and_ends_with_its_input() -> None:
    mcp = pytest.importorskip("mcp")
    import anyio

    async def talk() -> str:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = mcp.StdioServerParameters(command=sys.executable, args=["-m", "tuimon", "mcp"], env=env)
        async with mcp.Client(words) as connected:
            return await answer(connected, "explain", rule="hang")

    assert anyio.run(talk).startswith("HANG")


# -- a training that runs: a log stands in for its sources


@pytest.fixture
def live(monkeypatch, log):
    """The monitor of a log for each pid that is a training; the list of those that were opened."""
    monitors = []

    def attach(pid, _options):
        monitors.append(open_log(log))
        return monitors[-1]

    known = [Candidate(pid, 1, 7, ["python", "train.py"], None) for pid in range(PID, PID + 6)]
    monkeypatch.setattr(opened, "open_attach", attach)
    monkeypatch.setattr(opened, "find_candidates", lambda: known)
    monkeypatch.setattr(opened, "_TICK_S", 0.01)
    return monitors


def median_ms(seen: Seen) -> str:
    return f"{seen.report['steps']['median_ms']:.1f}"


def test_a_training_is_watched_once_and_answers_are_of_what_was_seen(trainings, live) -> None:
    assert trainings.query(str(PID), 60.0, median_ms) == "21.3"  # its end, before the minute is over
    assert len(live) == 1


def test_few_are_watched_at_a_time_and_none_that_is_not_the_users(trainings, live) -> None:
    for pid in range(PID, PID + 6):
        trainings.query(str(pid), 0.0, lambda seen: "")
    assert len(live) == 6 and len(trainings._watched) <= opened.MOST_WATCHED
    with pytest.raises(NoSuchProcess):
        trainings.query("7", 0.0, median_ms)


def test_without_a_name_the_only_one_that_trains_is_meant(trainings, live, monkeypatch) -> None:
    only_loaded = Candidate(PID + 1, 1, 7, ["jupyter"], None)
    marked = Candidate(PID, 1, 7, ["python", "train.py"], RingFacts())
    monkeypatch.setattr(opened, "find_candidates", lambda: [marked, only_loaded])
    assert trainings.query("", 60.0, median_ms) == "21.3"
    monkeypatch.setattr(opened, "find_candidates", lambda: [only_loaded])
    assert trainings.query("", 60.0, median_ms) == "21.3"
    monkeypatch.setattr(opened, "find_candidates", lambda: [marked, marked._replace(pid=7)])
    with pytest.raises(UsageError, match=f"there are 2: pids {PID}, 7"):
        trainings.query("", 60.0, median_ms)


def test_one_that_nobody_asks_for_is_left_alone(live, monkeypatch) -> None:
    monkeypatch.setattr(opened, "IDLE_S", 0.0)
    watched = opened._Watched(PID)
    watched._thread.join(20)
    assert watched.is_over and live[0]._stopped


# -- bounds, and what loads it


def test_an_answer_is_cut_at_a_line_and_says_how_much_is_missing() -> None:
    text = bounded([f"{n} {'x' * 90}" for n in range(100)], "the report")
    assert len(text) <= MOST_CHARACTERS
    *kept, last = text.splitlines()
    assert last == f"({100 - len(kept)} lines more: the report)"
    assert len(bounded(["y" * 10**6])) <= MOST_CHARACTERS


def test_no_other_command_loads_the_protocol() -> None:
    imports = "import tuimon.cli.watching; from tuimon.cli.commands import attach, explain, report, run, view"
    assert not loaded_by(imports) & {"mcp", "pydantic", "anyio"}
    assert not loaded_by("import tuimon.cli.commands.mcp, tuimon.views.mcp.server") & {"mcp", "pydantic", "textual"}
