"""Which lines run without gradients, as far as the source shows: in ``with torch.no_grad():`` or a function of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tuimon.proc.target_files import Rights, TargetFiles
from tuimon.sources.source_blocks import Block, parsed
from tuimon.sources.source_text import SourceText

if TYPE_CHECKING:
    from tuimon.sources.stacks.frames.gradient_spans import Span

#: No other file is parsed.
_MENTIONED = re.compile(rb"\b(?:no_grad|inference_mode|set_grad_enabled)\b")
#: How many files' blocks are held at once.
_FILES_HELD = 32


class GradientBlocks:
    """Finds the outermost such block around a line, within the function that the line is of."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._spans: dict[tuple[str, Rights | None], list[Span]] = {}

    def around(self, file: str, line: int, files: TargetFiles) -> Block | None:
        """The lines of the ``with`` statement, or of the decorated function, that a line is in; None where it is not.

        In this code they are 3 to 5 for lines 4 and 5, and none for line 2::

            2  loss = cost(model(x), y)
            3  with torch.no_grad():
            4      for x, y in held_out:
            5          right += hits(model(x), y)
        """
        inside = [span for span in self._of(file, files) if span.first <= line <= span.last]
        return min(inside, key=lambda span: span.last - span.first).block if inside else None

    def _of(self, file: str, files: TargetFiles) -> list[Span]:
        key = (file, files.rights)
        known = self._spans.get(key)
        if known is None:
            if len(self._spans) >= _FILES_HELD:
                del self._spans[next(iter(self._spans))]
            known = self._spans[key] = _spans_of(self._source.whole(file, files))
        return known


def _spans_of(text: bytes) -> list[Span]:
    if _MENTIONED.search(text) is None:
        return []
    from tuimon.sources.stacks.frames.gradient_spans import spans_of

    return spans_of(parsed(text))
