"""One page, three views: each shows every part of it."""

import io
import json
import re
from html import unescape

import pytest

from tests.views import streams
from tests.views.test_headless import Terminal
from tests.views.tui.running_app import running, texts
from tuimon.diagnosis.explain.page import Page, all_pages, page_of
from tuimon.views.explain import CodeBlock, page_html, page_parts
from tuimon.views.tui.drawing.lines import line_width, text_of
from tuimon.views.tui.drawing.pages import page_lines, plain_page, write_pages

each_page = pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.rule)


def words(text: str) -> str:
    """The characters alone: views break lines and set marks in their own way."""
    return re.sub(r"[\s·▏-]+", "", text)


@each_page
def test_all_three_views_have_the_whole_page(page: Page) -> None:
    text = words(plain_page(page))
    sheet = words("".join(texts(page_lines(page, 90))))
    html = words(unescape(re.sub(r"<[^>]+>", "", page_html(page.rule))))
    for part in page_parts(page):
        shown = words(part.code if isinstance(part, CodeBlock) else part.text)
        assert shown in text
        assert shown in sheet
        assert shown in html


@each_page
@pytest.mark.parametrize("width", [60, 78])
def test_only_code_and_addresses_are_wider_than_the_view(page: Page, width: int) -> None:
    rows = plain_page(page, width).splitlines()
    assert [row for row in rows if len(row) > width and not row.startswith("    ") and "https://" not in row] == []
    assert [row for row in page_lines(page, width) if line_width(row) > width and "▏" not in text_of(row)] == []


def test_a_terminal_gets_colours_and_a_pipe_does_not(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paged: list[str] = []
    monkeypatch.setattr("pydoc.pager", paged.append)
    pipe = io.StringIO()
    for file in (Terminal(), pipe):
        write_pages([page_of("input_bound")], file)
    assert "\x1b" not in pipe.getvalue()
    assert re.search(r"\x1b\[[\d;]*mfor\x1b", paged[0])  # a keyword
    assert "INPUT-BOUND" in paged[0]
    monkeypatch.setenv("NO_COLOR", "1")
    write_pages([page_of("input_bound")], Terminal())
    assert len(paged) == 2 and not re.search(r"\x1b\[[\d;]*3\dm", paged[1])


def test_thresholds_are_on_the_full_page(call) -> None:
    short = call("explain", "sync_point").out
    assert call("explain", "sync_point", "--full").out == plain_page(page_of("sync_point"))
    assert "\nThresholds\n" not in short and short.endswith("\nThresholds: tuimon explain sync_point --full\n")


def test_an_unknown_rule_names_those_that_are_close(call) -> None:
    said = "tuimon: there is no rule 'launch_bond'\n  Did you mean launch_bound?\n"
    assert call("explain", "launch_bond\x1b[31m", code=2).err == said
    assert "tuimon explain lists the rules" in call("explain", "xyz", code=2).err
    call("explain", "--all", "hang", code=2)


@pytest.mark.parametrize("rule", ["COMPUTE-BOUND", "COMPUTE-BOUND-CPU"])
def test_a_cause_of_two_rules_is_that_of_the_rule_that_is_named(rule: str, call) -> None:
    assert call("explain", f"{rule}/padding").out.startswith(f"{rule} ")


def test_the_list_and_all_pages(call) -> None:
    listed = [row.split()[0] for row in call("explain").out.splitlines()]
    assert listed == [page.rule for page in all_pages()]
    assert call("explain", "--all").out.count("\nHow sure it is\n") == len(listed)


def test_json_has_the_pages(call) -> None:
    shown = json.loads(call("explain", "gc_pauses", "--format", "json").out)
    assert (shown["schema"], [page["rule"] for page in shown["pages"]]) == (1, ["gc_pauses"])
    assert shown["pages"][0]["code"][0]["after"] == page_of("gc_pauses").code[0].after
    assert len(json.loads(call("explain", "--format", "json").out)["pages"]) == len(all_pages())


async def test_enter_on_a_finding_explains_it() -> None:
    async with running(streams.input_bound(5)) as (app, pilot):
        await pilot.press("v")
        assert text_of(app.screen.text.lines[0]).startswith("▸ INPUT-BOUND")
        await pilot.press("enter")
        assert text_of(app.screen.text.lines[0]).strip().startswith("The training has nothing to compute: ")
        await pilot.press("escape", "tab", "enter")
        await pilot.pause()
        assert text_of(app.screen.text.lines[0]).strip().startswith("Part of each step goes to work that is not")
        await pilot.press("enter", "escape")
        assert len(app.screen_stack) == 1


async def test_without_a_finding_there_is_nothing_to_explain() -> None:
    monitor = streams.input_bound(5)
    async with running(monitor) as (app, pilot):
        await pilot.press("v")
        monitor.findings = []
        app.tick()  # an open sheet stays live
        assert "No rule has found anything" in text_of(app.screen.text.lines[0])
        await pilot.press("tab", "shift+tab", "enter")
        assert len(app.screen_stack) == 2


def test_a_cause_has_its_own_code_in_each_view(call) -> None:
    text = call("explain", "INPUT-BOUND/rollout").out
    html = unescape(re.sub(r"<[^>]+>", "", page_html("input_bound", "rollout")))
    for shown in (text, html):
        assert "envs.step(policy(states)" in shown
        assert "def collate(" not in shown
        assert "slow_collate" in shown  # what else it may be
