"""How a log's growth is read off its lines."""

from __future__ import annotations

import json

import pytest

from bench.log_rate import SETTLE_S, compressed, grown


def line(kind: str, t: float, length: int) -> bytes:
    text = json.dumps({"type": kind, "t": t, "x": ""})
    return (text[:-2] + "x" * (length - 1 - len(text)) + '"}').encode()


def test_what_is_written_at_the_start_is_left_out() -> None:
    start = [line("header", 0.0, 5000), line("frames", SETTLE_S, 9000)]
    then = [line(kind, SETTLE_S + second, 1000) for second in range(1, 37) for kind in ("steps", "threads")]
    found = grown([*start, *then], SETTLE_S)
    assert found is not None
    assert found.mb_per_hour == pytest.approx(7.2)
    assert found.by_type == pytest.approx({"steps": 3.6, "threads": 3.6})


def test_a_log_that_covers_no_time_has_no_rate() -> None:
    assert grown([]) is None
    assert grown([line("header", 0.0, 500), line("steps", SETTLE_S / 2, 500)], SETTLE_S) is None


def test_compression_counts_every_flush() -> None:
    lines = [line("steps", float(t), 200) for t in range(100)]
    assert 2 < compressed(lines) < 100
    assert compressed(lines[:1]) < compressed(lines)
