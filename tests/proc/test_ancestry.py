"""How a process and its child are related."""

import pytest

from tuimon.proc import ancestry


@pytest.mark.parametrize(
    ("wchan", "waits"), [(b"do_wait", True), (b"futex_wait_queue", False), (b"0", False), (None, False)]
)
def test_a_process_that_waits_for_a_child(monkeypatch, wchan, waits):
    monkeypatch.setattr(ancestry, "read_bytes", {"/proc/7/wchan": wchan}.get)
    assert ancestry.waits_for_child(7) is waits
