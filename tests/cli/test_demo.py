"""``tuimon demo``: recorded runs that ship with tuimon."""

import math
import os

import pytest

from tests.cli.terminal import drained, ended, on_terminal
from tests.recorded_logs import ROOT
from tests.small_terminal import SmallTerminal
from tests.waiting import until
from tuimon.cli.commands.demo import DEFAULT, DEMOS, log_of, open_demo, trained_until_s
from tuimon.diagnosis.verdicts import Verdicts, fold
from tuimon.session.state import run_state
from tuimon.sources.log.source import read_records
from tuimon.views.finding_text import rule_title

SHIPPED = sorted((ROOT / "tuimon" / "recorded_runs").iterdir())
RULES = {
    "starved": "input_bound",
    "sync": "sync_point",
    "launch-bound": "launch_bound",
    "late-rank": "straggler_rank",
    "float32": "low_precision_unused",
    "healthy": "compute_bound",
}


def test_what_ships_is_what_is_shown_and_small():
    assert [path.name for path in SHIPPED] == sorted(f"{demo.log}.jsonl.gz" for demo in DEMOS.values())
    assert sum(path.stat().st_size for path in SHIPPED) < 300_000


@pytest.mark.parametrize("name", DEMOS)
def test_the_verdict_that_its_name_promises_is_there_before_the_last_seconds_are_played(name):
    with log_of(DEMOS[name]) as path:
        _, findings = fold(read_records(path))
        assert findings[0].rule == RULES[name]
        assert (findings[0].severity == "benign") == (name == "healthy")
        played_s = DEMOS[name].played_s
        end_s = trained_until_s(list(read_records(path)))
        reading = Verdicts()
        for record in read_records(path):
            if record.t <= end_s - played_s:
                reading.add(record)
    assert reading.findings
    assert played_s == 0 or reading.findings[0].rule == RULES[name]


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_holds_while_its_run_trains(name):
    demo = DEMOS[name]._replace(played_s=0.5)
    with log_of(demo) as path:
        monitor = open_demo(demo, path)
        monitor.start()
        until_s = trained_until_s(list(read_records(path)))
        until(lambda: (monitor.tick(), monitor.session.now_s >= until_s)[1])
        monitor.diagnose_if_due(math.inf)
        assert not monitor.tick() and not monitor.ended and monitor.session.now_s == until_s
        monitor.stop()
    assert monitor.session.exit is None and run_state(monitor.session).name == "training"
    assert monitor.findings[0].rule == RULES[name]
    assert demo.keys in monitor.session.notices["output"].message


def test_without_a_terminal_it_is_the_report(call):
    shown = call("demo").out
    with log_of(DEMOS[DEFAULT]) as path:
        assert shown == call("report", path).out
    assert "INPUT-BOUND" in shown


def test_the_list_has_a_row_for_each_with_its_verdict(call):
    head, *rows = call("demo", "--list").out.splitlines()
    assert head.split() == ["NAME", "VERDICT", "RECORDED"]
    assert [row.split()[:2] for row in rows] == [[name, rule_title(RULES[name])] for name in DEMOS]
    assert max(map(len, rows)) <= 100


def test_on_a_terminal_the_screen_shows_the_verdict_and_names_keys(tmp_path):
    screen = SmallTerminal(120, 40)

    def shows(*texts):
        screen.feed(drained(terminal))
        lines = " ".join(screen.display)
        return all(text in lines for text in texts)

    with on_terminal("demo", "sync", cwd=tmp_path) as (process, terminal):
        until(
            lambda: shows(
                "SYNC-POINT", "g07_masked_loss.py:8", "H100", f"Output not recorded · keys: {DEMOS['sync'].keys}"
            )
        )
        os.write(terminal, b"q")
        assert ended(process, terminal) == 0
