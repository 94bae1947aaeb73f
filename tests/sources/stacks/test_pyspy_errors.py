"""What py-spy's messages become, and its environment."""

from __future__ import annotations

import os

import pytest

from tuimon.sources.stacks.pyspy import errors, recorder


def test_what_pyspy_says_becomes_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"
    me = os.getpid()
    monkeypatch.setattr(errors, "in_container", lambda: True)
    assert "--cap-add SYS_PTRACE" in (errors.explain(denied, me).hint or "")
    monkeypatch.setattr(errors, "in_container", lambda: False)
    for scope_now, word in (
        (1, "kernel.yama.ptrace_scope=0"),
        (2, "sudo"),
        (3, "reboot"),
        (0, "seccomp"),
        (None, "seccomp"),
    ):
        monkeypatch.setattr(errors, "yama_scope", lambda scope_now=scope_now: scope_now)
        assert word in (errors.explain(denied, me).hint or "")
    unsupported = errors.explain("Error: Unsupported version of Python: 3.99.0\n\nStack backtrace:\n  0: x", me)
    assert unsupported.message == "no stack samples: py-spy does not know Python 3.99.0"
    early = errors.explain("Error: Failed to find python version from target process", me)
    assert early.passing
    other = errors.explain("Error: \x1b[31mSomething else\n\nStack backtrace:\n   0: foo", me)
    assert other.message == f"no stack samples of process {me}: Something else"
    assert "py-spy gave no reason" in errors.explain("", me).message
    assert errors.explain("Error: Failed to find a python interpreter in the .data section", me).passing


def test_pyspys_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "full")
    monkeypatch.setenv("RUST_LOG", "debug")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    env = recorder.environment()
    assert not [name for name in env if name.startswith("RUST_")]
    assert env["LC_ALL"] == "C"
    assert env["PATH"] == os.environ["PATH"]
