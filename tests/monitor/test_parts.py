"""The sources of a live run: what options leave out is named in a notice."""

from __future__ import annotations

from tuimon.monitor.opening import sources_of
from tuimon.monitor.options import Options
from tuimon.sources.notices import NoticeSource
from tuimon.sources.process_table import ProcessTable


def test_what_is_switched_off_is_named() -> None:
    sources = list(sources_of(ProcessTable(1, None), Options(markers=False, stacks=False, gpu=False)))
    (notices,) = (source for source in sources if isinstance(source, NoticeSource))
    assert [(notice.source, notice.message) for notice in notices.read()] == [
        ("markers", "markers are switched off (--no-markers)"),
        ("stacks", "stack samples are switched off (--no-stacks)"),
        ("gpu", "GPU counters are switched off (--no-gpu)"),
    ]
    for source in sources:
        source.close()
