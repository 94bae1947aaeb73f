"""Picking records of a kind out of what a read returned."""

from __future__ import annotations

from tuimon.records import AnyRecord, Gpu, Notice


def gpus(records: list[AnyRecord]) -> list[Gpu]:
    """The GPUs' records."""
    return [record for record in records if isinstance(record, Gpu)]


def notices(records: list[AnyRecord]) -> list[Notice]:
    """The source's notices."""
    return [record for record in records if isinstance(record, Notice)]
