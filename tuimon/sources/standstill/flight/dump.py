"""One rank's dump: how far the rank has come in each process group."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tuimon.records import RankCollective
from tuimon.sources.standstill.flight.pickled import NotPlain, plain_value

#: Most process groups of a rank that are kept, the first; a training has a few, one for each kind of parallelism.
_GROUPS = 16
#: Longest name of a group and of a collective, and most ranks of a group that are kept.
_CHARS, _MEMBERS = 80, 4096


class _Entry(msgspec.Struct, frozen=True):
    """A collective of the dump; further fields are passed over."""

    process_group: list[str]
    collective_seq_id: int
    profiling_name: str
    state: str = ""
    retired: bool = False
    is_p2p: bool = False

    @property
    def is_over(self) -> bool:
        return self.retired or self.state == "completed"


class _Group(msgspec.Struct, frozen=True):
    name: str = ""
    ranks: str = ""  # "[0, 1]"


class _Dump(msgspec.Struct, frozen=True):
    entries: list[_Entry] = []
    pg_config: dict[str, _Group] = {}


def rank_collectives(data: bytes, rank: int) -> list[RankCollective]:
    """By group, what a rank has entered last and what it waits for; raises NotPlain."""
    try:
        dump = msgspec.convert(plain_value(data), _Dump, strict=False)
    except msgspec.ValidationError as error:
        raise NotPlain(str(error)) from error
    groups: dict[tuple[str, ...], list[_Entry]] = {}
    for entry in dump.entries:
        if not entry.is_p2p and (len(groups) < _GROUPS or tuple(entry.process_group) in groups):
            groups.setdefault(tuple(entry.process_group), []).append(entry)
    return [_of_group(key, entries, dump.pg_config, rank) for key, entries in groups.items()]


def _of_group(key: tuple[str, ...], entries: Iterable[_Entry], config: dict[str, _Group], rank: int) -> RankCollective:
    by_number = sorted(entries, key=lambda entry: entry.collective_seq_id)
    waits = next((entry for entry in by_number if not entry.is_over), None)
    shown = waits or by_number[-1]
    return RankCollective(
        rank=rank,
        group=":".join(part for part in key if part and part != "undefined")[:_CHARS],
        entered=max(0, by_number[-1].collective_seq_id),
        name=shown.profiling_name.rpartition(":")[2][:_CHARS],
        waits_for=max(0, waits.collective_seq_id) if waits is not None else None,
        members=_members(key, config),
    )


def _members(key: tuple[str, ...], config: dict[str, _Group]) -> list[int]:
    """The ranks of a group; empty where that is not said. Gloo names its group differently in the two places."""
    found = config.get(key[0] if key else "") or (next(iter(config.values())) if len(config) == 1 else None)
    if found is None:
        return []
    try:
        ranks: Any = json.loads(found.ranks)  # Any: JSON
    except (ValueError, RecursionError):
        return []
    if not isinstance(ranks, list) or not all(isinstance(each, int) and each >= 0 for each in ranks):
        return []
    return ranks[:_MEMBERS]
