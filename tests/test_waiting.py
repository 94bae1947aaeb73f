"""How long tests wait."""

import os
import time

import pytest

from tests import waiting


@pytest.mark.parametrize(("load", "polls"), [(0.1, 50), (2.0, 50), (20.0, 500)])
def test_on_a_busy_machine_a_deadline_comes_later(load, polls, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(AssertionError, match="waited for a window"):
        waiting.until(lambda: None, "a window", seconds=1.0)
    assert abs(len(slept) - polls) <= 1
