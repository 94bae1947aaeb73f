"""A cache of answers about processes, ranks and trainings, kept until what they rest on changes."""

from __future__ import annotations

from msgspec import Struct, field

from tuimon.records import Process
from tuimon.session.ranks.row import RankRow


class Held(Struct):
    """New whenever a process comes, changes or ends, or begins to train; ``rows`` are of a moment besides."""

    groups: dict[int, list[Process]] = field(default_factory=dict)  # the ranks of the training of a process
    trainings: list[list[Process]] | None = None
    last: int | None = None  # the process in focus once all have ended
    pids: dict[int, list[int]] | None = None  # by node, in the order in which the processes came
    rows: tuple[float, int | None, list[RankRow]] | None = None  # as of a moment and a focus
