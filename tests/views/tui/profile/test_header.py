"""What stands around the views of the profile."""

from tests.views.tui.profile.samples import Sample, of
from tuimon.session.loop_tree.range_join import RANGE
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.profile.header import empty_lines, filters, phases_line, ranges_line, tabs_line


def test_tabs():
    row = text_of(tabs_line("tree", "main · pid 4242", 1234, 100))
    assert row.startswith(" h Hot lines   c Call tree   i Icicle ")
    assert row.endswith("t main · pid 4242  1 234 samples")
    assert cells(tabs_line("lines", "x" * 200, 1, 60)) <= 62


def test_phases_with_their_shares(trainer):
    spans = phases_line(trainer, "forward", 116)
    assert "data 62 %" in text_of(spans) and "other 4 %" in text_of(spans)
    assert next(span for span in spans if "forward" in span.text).role == "forward badge"
    assert cells(phases_line(trainer, None, 76)) <= 76
    assert "optimizer 4%" in text_of(phases_line(trainer, None, 76))


def test_user_ranges_have_a_line_of_their_own_and_are_filters():
    ranges = [f"step/{'part' * 3} {i}" for i in range(8)]
    samples = [Sample([0], 10, "other", ranges=("step", path)) for path in ranges]
    profile = of(*samples, Sample([0], 20, "eval"))
    listed = filters(profile)
    assert listed[:7] == (None, "data", "forward", "backward", "optimizer", "other", "eval")
    assert listed[7:] == (f"{RANGE}step", *(RANGE + path for path in ranges))
    row = text_of(ranges_line(profile, None, 116))
    assert row.startswith(" ranges ") and "step 80 %" in row
    for path in ranges:
        spans = ranges_line(profile, RANGE + path, 76)
        assert cells(spans) <= 76
        assert next(span.text for span in spans if span.role == "key badge") == f" {path} 10% "
    assert "range" not in text_of(phases_line(profile, None, 200))
    assert "eval 20 %" in text_of(phases_line(profile, None, 200))
    assert profile.count(f"{RANGE}step") == 80
    assert profile.lines(f"{RANGE}{ranges[0]}").samples == 10
    assert "the range gone" in text_of(empty_lines(profile, f"{RANGE}gone")[1])
