"""What a DataLoader is, from the facts that a training interns in its ring."""

from __future__ import annotations

import json

from tuimon.records import LoaderFacts


def parsed_facts(text: str) -> tuple[LoaderFacts, int] | None:
    """A loader's facts and its number; None when they are not whole."""
    try:
        fields = json.loads(text)
        facts = LoaderFacts(
            dataset=str(fields["dataset"]),
            kind="iterable" if fields["kind"] == "iterable" else "map",
            workers=_count(fields["workers"]),
            prefetch=_whole(fields["prefetch"]),
            batch_size=_whole(fields["batch"]),
            pin_memory=bool(fields["pin"]),
            persistent=bool(fields["persistent"]),
            context=None if fields["context"] is None else str(fields["context"]),
        )
        return facts, _count(fields["n"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # a process may write anything
        return None


def _count(value: int) -> int:
    if not 0 <= value < 1 << 31:
        raise ValueError(f"{value} of a loader")
    return int(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else None
