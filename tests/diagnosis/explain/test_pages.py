"""Every rule has its page, and every page is complete."""

import ast
import shlex
from pathlib import Path

import pytest

from tuimon.diagnosis import explain
from tuimon.diagnosis.evidence.data import HAND_OVER_MS
from tuimon.diagnosis.evidence.gpu import GAPS
from tuimon.diagnosis.evidence.process import FIRST_STEPS, SLOW_RATIO
from tuimon.diagnosis.evidence.ranks import NCCL_SMS
from tuimon.diagnosis.explain.page import Page, all_pages, page_of, page_with, written
from tuimon.diagnosis.rule import UNSURE
from tuimon.diagnosis.rulebook import BY_NAME, RULES
from tuimon.diagnosis.rules.gpu.waits import FULL_LEAD_US
from tuimon.threshold import HOLD_S

each_page = pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.rule)


def test_every_rule_has_a_page_and_no_page_is_of_no_rule() -> None:
    assert [page.rule for page in all_pages()] == [rule.name for rule in RULES]
    pages = Path(explain.__file__).parent / "pages"
    families = [path.relative_to(pages).with_suffix("").as_posix() for path in pages.rglob("*.md")]
    assert sorted(name for family in families for name in written(family)) == sorted(BY_NAME)


@each_page
def test_a_page_is_complete(page: Page) -> None:
    for text in (page.meaning, page.sureness, page.advice):
        assert 30 < len(text) < 700 and text[0].isupper() and text.endswith(".")
    assert page.wrong_when and all(text.endswith(".") for text in page.wrong_when)
    assert list(page.causes) == list(BY_NAME[page.rule].causes)
    assert page.links and all(link.url.startswith("https://") for link in page.links)
    assert len(set(page.thresholds)) == len(page.thresholds)


@each_page
def test_a_page_has_code_to_change_or_says_why_not(page: Page) -> None:
    assert bool(page.code) != bool(page.no_code)
    for pair in page.code:
        assert pair.before != pair.after
        assert pair.cause is None or pair.cause in page.causes
        for code in (pair.before, pair.after):
            assert max(map(len, code.splitlines())) <= 100
            assert ast.parse(code) if pair.language == "python" else shlex.split(code)


def test_thresholds_are_those_of_the_rule() -> None:
    share, *others = page_of("input_bound").thresholds
    assert (share.value, share.meaning.split(",")[0]) == (0.1, "least share of the step that a rule reports")
    assert "TraceML" in share.source
    assert HAND_OVER_MS.meaning in {limit.meaning for limit in others}  # of a cause
    assert {limit.value for limit in page_of("warmup").thresholds} == {FIRST_STEPS, HOLD_S, SLOW_RATIO}
    assert {limit.meaning for limit in page_of("queue_full").thresholds} >= {
        FULL_LEAD_US.meaning,
        GAPS.meaning,
    }  # by need
    assert {limit.meaning for limit in page_of("straggler_rank").thresholds} >= {UNSURE.meaning, NCCL_SMS.meaning}


def test_text_beside_code_which_no_view_shows_is_an_error() -> None:
    sections = written("interpreter")["gil_contention"]
    edited = sections["What to do"].replace("```python after", "Or this:\n\n```python after")
    with pytest.raises(ValueError, match="Or this:"):
        page_with(BY_NAME["gil_contention"], {**sections, "What to do": edited})


def test_a_page_with_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        page_of("no_such_rule")
