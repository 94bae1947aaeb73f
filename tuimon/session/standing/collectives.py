"""Which rank has not entered a collective that others wait in, by their flight recorders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from tuimon.records import RankCollective
from tuimon.session.standing.text import ranks_text

#: How many groups are reported.
_GROUPS = 3


class Stuck(Struct, frozen=True, gc=False):
    """A collective that does not end; ranks in order."""

    group: str
    number: int
    name: str  # "all_reduce"
    waiting: tuple[int, ...]  # ranks in it
    missing: tuple[int, ...]  # ranks that have not come to it
    elsewhere: tuple[tuple[int, str], ...]  # ranks that are in another one of that number
    unknown: tuple[int, ...]  # members of whose recorder nothing is known

    @property
    def text(self) -> str:
        """``rank 3 has not entered all_reduce #1204, in which ranks 0-2 wait``."""
        what, wait = f"{self.name} #{self.number}", f"{ranks_text(self.waiting)} {_verb(self.waiting, 'wait')}"
        if self.elsewhere:
            others = ", ".join(f"rank {rank} is in {name} #{self.number}" for rank, name in self.elsewhere)
            return f"{others}, {ranks_text(self.waiting)} in {what}"
        if self.missing:
            return f"{ranks_text(self.missing)} {_verb(self.missing, 'have')} not entered {what}, in which {wait}"
        if self.unknown:
            return f"{wait} in {what}; of {ranks_text(self.unknown)} no flight recorder is known"
        return f"all {len(self.waiting)} ranks are in {what}, and it does not end"


def stuck(rows: Sequence[RankCollective]) -> list[Stuck]:
    """The collective of each group that does not end; those that a rank is missing from first."""
    groups: dict[str, dict[int, RankCollective]] = {}
    for row in rows:
        groups.setdefault(row.group, {})[row.rank] = row  # of a rank the latest
    found = [one for group, ranks in groups.items() if (one := _stuck(group, ranks)) is not None]
    return sorted(found, key=lambda one: not (one.missing or one.elsewhere))[:_GROUPS]


def _stuck(group: str, ranks: dict[int, RankCollective]) -> Stuck | None:
    waiting = [row for row in ranks.values() if row.waits_for is not None]
    if not waiting:
        return None
    number = min(row.waits_for for row in waiting if row.waits_for is not None)
    inside = [row for row in waiting if row.waits_for == number]
    name = Counter(row.name for row in inside).most_common(1)[0][0]
    members = {rank for row in inside for rank in row.members}
    return Stuck(
        group=group,
        number=number,
        name=name,
        waiting=tuple(sorted(row.rank for row in inside if row.name == name)),
        missing=tuple(sorted(row.rank for row in ranks.values() if row.entered < number)),
        elsewhere=tuple(sorted((row.rank, row.name) for row in inside if row.name != name)),
        unknown=tuple(sorted(members - ranks.keys())),
    )


def _verb(ranks: Sequence[int], verb: str) -> str:
    if len(ranks) != 1:
        return verb
    return "has" if verb == "have" else f"{verb}s"
