"""Markers that only count."""

from tuimon.agent.ring import layout

SLOTS = 64


def emit_values(writer, values):
    for value in values:
        writer.emit(layout.MARK, value)


def values(markers):
    return [marker.value for marker in markers]
