"""What one field of several records comes to, oldest first: rules that need to know nothing of the field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Any: records of one type, and values of whatever type the field has.
Rule = Callable[[str, Sequence[Any]], object]


def known(name: str, records: Sequence[Any]) -> list[Any]:
    """The values of a field that are not None."""
    return [value for value in (getattr(record, name) for record in records) if value is not None]


def last(name: str, records: Sequence[Any]) -> object:
    """The newest."""
    return getattr(records[-1], name)


def last_known(name: str, records: Sequence[Any]) -> object:
    """The newest that is known."""
    return next(reversed(known(name, records)), None)


def first(name: str, records: Sequence[Any]) -> object:
    """The oldest."""
    return getattr(records[0], name)


def first_known(name: str, records: Sequence[Any]) -> object:
    """The oldest that is known."""
    return next(iter(known(name, records)), None)


def total(name: str, records: Sequence[Any]) -> object:
    """The sum."""
    values = known(name, records)
    return sum(values) if values else None


def seconds(name: str, records: Sequence[Any]) -> object:
    """The sum of times."""
    return round(sum(known(name, records)), 9)


def least(name: str, records: Sequence[Any]) -> object:
    """The least."""
    return min(known(name, records), default=None)


def most(name: str, records: Sequence[Any]) -> object:
    """The greatest."""
    return max(known(name, records), default=None)


def mean(name: str, records: Sequence[Any]) -> object:
    """Mean over time; to four digits, as its sources give."""
    pairs = [(getattr(r, name), getattr(r, "window_s", 1.0)) for r in records if getattr(r, name) is not None]
    whole = sum(weight for _, weight in pairs)
    if not whole:
        return pairs[-1][0] if pairs else None
    value = sum(value * weight for value, weight in pairs) / whole
    return round(value) if all(isinstance(each, int) for each, _ in pairs) else float(f"{value:.4g}")


def distinct(name: str, records: Sequence[Any]) -> object:
    """All entries of a list, each once."""
    return list(dict.fromkeys(each for record in records for each in getattr(record, name)))


def joined(name: str, records: Sequence[Any]) -> object:
    """All entries of a list."""
    return [each for record in records for each in getattr(record, name)]


def nothing(_name: str, _records: Sequence[Any]) -> object:
    """No entries."""
    return []
