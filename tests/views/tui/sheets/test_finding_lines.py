"""The sheet of findings: what they rest on, what changed, what could not be judged."""

import pytest
from msgspec import structs

from tests.views import streams
from tests.views.streams import INPUT_BOUND
from tests.views.tui.running_app import running, texts
from tests.views.tui.sheets.test_sheets import FakeCloseUp
from tuimon.diagnosis.explain.page import page_of
from tuimon.diagnosis.finding import Change, Fix, Unjudged, VerdictChange
from tuimon.interval import Interval
from tuimon.views.finding_text import evidence_rows, evidence_text
from tuimon.views.tui.drawing.lines import line_width, text_of
from tuimon.views.tui.sheets.findings_sheet import changes_lines, findings_lines, unjudged_lines

CHANGES = (
    VerdictChange(62.0, 1200, "input_bound/no_workers", "compute_bound"),
    VerdictChange(101.0, None, "compute_bound", None),
)
MISSING = (
    Unjudged("launch_bound", "no GPU events are recorded"),
    Unjudged("places", "no stack samples"),
    Unjudged("sync_point", "no GPU events are recorded"),
)


def test_what_could_not_be_judged_by_its_reason():
    assert texts(unjudged_lines(MISSING, 80)) == [
        "Could not be judged",
        " no GPU events are recorded",
        "   launch-bound, sync-point",
        " no stack samples",
        "   places",
    ]
    assert unjudged_lines((), 80) == []


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("data_ms_per_step", 41.5, ("data per step", "41.5 ms")),
        ("worker_cpu_ratio", 0.998, ("worker CPU", "100 % of a core")),
        ("hot_share", 0.5, ("hottest function", "50 % of the samples")),
        ("gpu_idle_at_most", 0.44, ("GPU idle at most", "44 %")),
        ("gpu_idle_at_most", 0.0004, ("GPU", "always busy")),
        ("sm_clock_max_mhz", 1980, ("SM clock max", "1980 MHz")),
        ("reserved_bytes", 36 << 30, ("reserved", "36 GiB")),
        ("growth_bytes_per_s", 2.5 * 2**20, ("growth", "2.5 MiB/s")),
        ("full_in_s", 192.0, ("full in", "3m12s")),
        ("lead_us", 50.0, ("launch lead", "0.05 ms")),
        ("speedup_at_most", 1.234, ("gain at most", "1.23x")),
        ("cores", 2, ("cores", "2")),
        ("pinned", False, ("pinned", "no")),
        ("cores_wanted", 1.7, ("cores wanted", "1.7")),
        ("open_phase", "between", ("open phase", "data+forward")),
    ],
)
def test_evidence_with_its_unit(name, value, shown):
    assert evidence_text(name, value) == shown


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.724, 0.864, "72 to 86 %"),
        (0.0, 0.81, "up to 81 %"),
        (0.03, 0.43, "up to 43 %"),
        (0.02, 0.03, "2 to 3 %"),
        (0.46, 0.461, "46 %"),
        (0.0, 0.0, "0 %"),
        (0.0, 1.0, "unknown"),
    ],
)
def test_bounds_are_one_range(low, high, text):
    known = {"lead_us": 50.0, "gpu_idle_at_least": low, "gpu_idle_at_most": high, "hot_share": None, "workers": 2}
    assert evidence_rows(known) == [("launch lead", "0.05 ms"), ("GPU idle", text), ("workers", "2")]


@pytest.mark.parametrize("keys", [("v",), ("tab", "enter")])
async def test_the_sheet_has_it_all_in_order(keys):
    monitor = streams.input_bound(5)
    monitor.verdicts.changes, monitor.closeup = CHANGES, FakeCloseUp()
    async with running(monitor, (120, 90)) as (app, pilot):
        await pilot.press(*keys)
        await app.workers.wait_for_complete()
        await pilot.pause()
        app.tick()
        shown = "\n".join(text_of(row) for row in app.screen.text.lines)
        order = [shown.index(part) for part in ("INPUT-BOUND", "31 ▏ line 31", "SIDE-WORK", "What changed",
                                                "Could not be judged", "launch-bound")]  # fmt: skip
        assert order == sorted(order)
        assert monitor.closeup.requests == [("/home/me/project/transforms.py", 31)]
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


def test_fixes_are_a_table_best_first():
    workers = Fix("num_workers=6", 2.13, Interval(2.13, 2.13), Change("workers", 6))
    items = Fix("make augment() cheaper", 3.0, Interval(2.0, 4.0), Change("items", 0.0))
    found = structs.replace(INPUT_BOUND, fixes=(workers, items, Fix("ask around")))
    rows = [" ".join(row.split()) for row in texts(findings_lines([found], 110))]
    at = rows.index("Fix gain")
    assert rows[at + 1 : at + 4] == [
        "num_workers=6 up to 2.1x faster",
        "make augment() cheaper 2.0x to 4.0x faster",
        "ask around –",
    ]


@pytest.mark.parametrize("width", [36, 56, 60, 100, 110])
def test_a_finding_fits_and_keeps_place_and_gain_and_what_follows_fits(width):
    rows = findings_lines([INPUT_BOUND, streams.SIDE_WORK], width)
    others = [*changes_lines(CHANGES, width), *unjudged_lines(MISSING, width)]
    assert all(line_width(row) <= width for row in (*rows, *others))
    shown = "\n".join(map(text_of, rows))
    assert "transforms.py:31" in shown and "up to 2.1x faster" in shown


def test_why_and_how_sure_are_said_of_the_chosen_finding():
    both = [INPUT_BOUND, streams.SIDE_WORK]
    for chosen in (None, "side_work"):
        rows = "\n".join(texts(findings_lines(both, 400, chosen=chosen)))
        for rule in ("input_bound", "side_work"):
            assert (page_of(rule).meaning in rows) == (rule == (chosen or "input_bound"))
        assert rows.count("How sure") == 1
