"""Hot lines and call tree of the same samples: which is shown, of which phase, and what keys do in it."""

from __future__ import annotations

from collections.abc import Callable

from tuimon.records import Place
from tuimon.session.stacks.samples import Samples
from tuimon.views.tui.drawing.lines import Line
from tuimon.views.tui.profile.calltree import TreeView, node_of_line
from tuimon.views.tui.profile.header import FILTERS, Mode, filters
from tuimon.views.tui.profile.hotlines import SORTS, LinesView
from tuimon.views.tui.sheets.code_around import Code, no_code


class SampleViews:
    """The two views, one of them shown."""

    def __init__(self) -> None:
        self.mode: Mode = "lines"
        self.phase: str | None = None  # or a user range; None: all samples
        self.samples: Samples | None = None  # the samples that are shown
        self.begin_anew()

    def begin_anew(self) -> None:
        """Reset cursors and folding, for samples of another scope."""
        self.lines, self.tree = LinesView(), TreeView()

    def draw(
        self,
        samples: Samples,
        width: int,
        height: int,
        *,
        on_gpu: bool,
        code_of: Callable[[Place], Code] = no_code,
    ) -> list[Line]:
        """Exactly ``height`` lines of the view that is shown."""
        if self.mode == "lines":
            return self.lines.draw(samples, self.phase, width, height, on_gpu=on_gpu, code_of=code_of)
        return self.tree.draw(samples, self.phase, width, height)

    def _shown(self) -> LinesView | TreeView:
        return self.lines if self.mode == "lines" else self.tree

    def move(self, rows_down: int) -> None:
        """Move the cursor."""
        self._shown().move(rows_down)

    def click(self, x: int, y: int) -> bool:
        """Put the cursor on what lies there; whether it stood there already."""
        return self._shown().click(x, y)

    def sideways(self, step: int) -> None:
        """Select the next phase; fold or unfold."""
        self.select_phase(step) if self.mode == "lines" else self.tree.sideways(step)

    def enter(self) -> None:
        """Show the line in the tree; fold or unfold."""
        self._show_line_in_tree() if self.mode == "lines" else self.tree.enter()

    def select_phase(self, step: int) -> None:
        """Show only the samples of the next phase or user range."""
        choices = filters(self.samples) if self.samples is not None else FILTERS
        at = choices.index(self.phase) if self.phase in choices else 0  # a range may have left the last 30 s
        self.phase = choices[(at + step) % len(choices)]
        self.tree = TreeView()

    def toggle_libraries(self) -> None:
        """Every line by itself, or a library's time with the line that called it."""
        self.lines.libraries = not self.lines.libraries

    def sort_by_next(self) -> None:
        """Sort the lines by their own or their total share."""
        self.lines.sort = (self.lines.sort + 1) % len(SORTS)

    def _show_line_in_tree(self) -> None:
        row = self.lines.selected()
        if row is None or self.samples is None:
            return
        node = node_of_line(self.samples.tree(self.phase), row)
        self.mode = "tree"
        if node is not None:
            self.tree.reveal(node)
