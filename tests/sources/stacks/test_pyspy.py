"""What a window of py-spy leaves, with a program in its place that prints and writes what py-spy does."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import until
from tuimon.sources.stacks.pyspy import recorder


def test_pyspy_is_never_looked_up_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "py-spy"
    planted.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "path", ["", "."])
    _install(tmp_path, "py-spy")
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "..", f"../{tmp_path.name}"]))
    assert recorder.find() is None
    monkeypatch.setenv("PATH", f".{os.pathsep}{tmp_path}")
    assert recorder.find() == str(planted)
    planted.chmod(0o644)
    assert recorder.find() is None


def _install(folder: Path, script: str) -> None:
    """The metadata that pip leaves in a folder of packages: ``script`` is where it says that it put py-spy."""
    info = folder / "py_spy-0.4.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: py-spy\nVersion: 0.4.1\n")
    (info / "RECORD").write_text(f"{script},,\npy_spy-0.4.1.dist-info/METADATA,,\n")


@pytest.mark.parametrize(
    ("packages", "recorded", "script"),
    [
        ("packages", "../../bin/py-spy", "packages/bin/py-spy"),  # pip install --target
        ("lib/python3.12/site-packages", "../../../bin/py-spy", "bin/py-spy"),  # pip install --user, --prefix
    ],
)
def test_pyspy_is_found_where_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str, recorded: str, script: str
) -> None:
    _install(tmp_path / packages, recorded)
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path / packages)])
    monkeypatch.setenv("PATH", "")
    assert recorder.find() is None
    (tmp_path / script).parent.mkdir(exist_ok=True)
    (tmp_path / script).touch(0o755)
    found = recorder.find()
    assert found is not None and os.path.samefile(found, tmp_path / script)


def test_samples_that_pyspy_could_not_read_are_counted(tmp_path: Path) -> None:
    fake = tmp_path / "py-spy"
    profile = '{"profiles": [{"name": "Thread 1", "samples": [[], []]}], "shared": {"frames": []}}'
    fake.write_text(f"#!/bin/sh\necho 'py-spy> Wrote it. Samples: 2 Errors: 7'\necho '{profile}' >/proc/self/fd/3\n")
    fake.chmod(0o755)
    recording = recorder.Recording.start(str(fake), os.getpid(), 20, 30.0)
    ended = until(lambda: recording.poll(time.monotonic()), "the child to end")
    assert ended.samples is not None
    assert ended.samples.instants == 2
    assert ended.failed == 7


def test_one_that_begins_late_samples_for_as_long_as_any_other(tmp_path: Path) -> None:
    go, fake, profile = (tmp_path / name for name in ("go", "py-spy", "profile"))
    profile.write_text('{"profiles": [{"name": "Thread 1", "samples": [[], []]}], "shared": {"frames": []}}')
    fake.write_text(
        f"#!/bin/sh\ntrap 'cat {profile} >/proc/self/fd/3; exit' INT\n"
        f"until [ -e {go} ]; do sleep 0.05; done\necho 'py-spy> Sampling process'\nwhile :; do sleep 0.05; done\n"
    )
    fake.chmod(0o755)
    recording = recorder.Recording.start(str(fake), os.getpid(), 20, 0.5)
    begin_s = recording.started_s
    for late_s in (0.5, 2.0):
        assert recording.poll(begin_s + late_s) is None and not recording.stopping
    go.touch()
    until(lambda: os.fstat(recording.messages).st_size, "it to begin")
    assert recording.poll(begin_s + 2.25) is None and not recording.stopping
    assert recording.poll(begin_s + 2.5) is None and recording.stopping
    ended = until(lambda: recording.poll(begin_s + 2.75), "its file")
    assert ended.samples is not None and not ended.interrupted
    assert ended.window_s == pytest.approx(0.5)
