"""The profile of selected samples: hot lines and a call tree, each computed on first use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuimon.session.loop_tree.hot_lines import LineTable, line_table
from tuimon.session.loop_tree.range_join import RANGE
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.session.loop_tree.tree import CallTree, call_tree


class SampleProfile:
    """The selected samples; every view shows the same object."""

    def __init__(self, samples: Sequence[StackSample]) -> None:
        self._samples = samples
        self._trees: dict[str | None, CallTree] = {}
        self._tables: dict[tuple[str | None, bool], LineTable] = {}
        self.phases: Counter[str] = Counter()
        self.ranges: Counter[str] = Counter()  # by path; those around others hold their samples as well
        for sample in samples:
            self.phases[sample.phase] += sample.count
            for path in sample.ranges:
                self.ranges[path] += sample.count

    @property
    def samples(self) -> int:
        """How many there are, of all phases."""
        return self.phases.total()

    @property
    def has_phases(self) -> bool:
        """True if any of them lies in a phase."""
        return any(name != "none" for name in self.phases)

    def count(self, part: str | None) -> int:
        """How many lie in a phase, or in a user range (see ``StackSample.lies_in``)."""
        if part is None:
            return self.samples
        return self.ranges[part.removeprefix(RANGE)] if part.startswith(RANGE) else self.phases[part]

    def tree(self, phase: str | None = None) -> CallTree:
        """The call tree of a phase or range (None: of all)."""
        if phase not in self._trees:
            self._trees[phase] = call_tree(self._samples, phase)
        return self._trees[phase]

    def lines(self, phase: str | None = None, *, libraries: bool = False) -> LineTable:
        """The hot lines of a phase or range (None: of all)."""
        key = (phase, libraries)
        if key not in self._tables:
            self._tables[key] = line_table(self._samples, phase, libraries=libraries)
        return self._tables[key]
