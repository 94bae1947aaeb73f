"""Samples and tokens that a program passes to ``tuimon.step``."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from tuimon.records import Steps
from tuimon.session.windows import Window


class Rates(NamedTuple):
    """A second; None where unknown."""

    samples: float | None = None
    tokens: float | None = None


class _Size(Struct, gc=False):
    t: float
    span_s: float
    samples: int | None
    tokens: int | None


class StepSizes:
    """The step sizes of one process."""

    def __init__(self) -> None:
        self._window: Window[_Size] = Window()
        self._run = _Size(0.0, 0.0, None, None)

    def add_steps(self, record: Steps) -> None:
        """Fold a window."""
        if record.samples is None and record.tokens is None and not self._run.span_s:
            return
        size = _Size(record.t, max(0.0, record.window_s - record.slowed_ns / 1e9), record.samples, record.tokens)
        self._window.append(size)
        self._run = _joined([self._run, size])

    def rates(self, *, whole_run: bool) -> Rates:
        """Over the last 30 s, or over the whole run."""
        size = self._run if whole_run else _joined(self._window.records)
        if not size.span_s:
            return Rates()
        return Rates(*(None if each is None else each / size.span_s for each in (size.samples, size.tokens)))


def _joined(sizes: list[_Size]) -> _Size:
    samples = [each.samples for each in sizes if each.samples is not None]
    tokens = [each.tokens for each in sizes if each.tokens is not None]
    return _Size(
        sizes[-1].t if sizes else 0.0,
        sum(each.span_s for each in sizes),
        sum(samples) if samples else None,
        sum(tokens) if tokens else None,
    )
