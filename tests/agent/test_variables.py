"""Environment variables as the agent reads them."""

import os

from tuimon.agent.outside import variable


def test_the_same_as_os_environ_has(monkeypatch):
    monkeypatch.delenv("TUIMON_TEST", raising=False)
    assert variable("TUIMON_TEST") is None
    for value in ("", "1", "caf\u00e9", "\udcff"):
        monkeypatch.setenv("TUIMON_TEST", value)
        assert variable("TUIMON_TEST") == value


def test_a_program_may_replace_os_environ(monkeypatch):
    monkeypatch.setattr(os, "environ", {"TUIMON_TEST": "theirs"})
    assert (variable("TUIMON_TEST"), variable("TUIMON_OTHER")) == ("theirs", None)
