"""Reads of memory that fail, and where a file has a section."""

import ctypes
import os
import sys

import pytest

from tuimon.agent.interpreter.debug_offsets import UnknownPython, find_offsets
from tuimon.agent.interpreter.elf import find_section
from tuimon.agent.interpreter.memory import ProcessMemory, Unreadable
from tuimon.agent.interpreter.memory_window import MemoryReader


@pytest.fixture
def ours():
    with ProcessMemory(os.getpid()) as memory:
        yield memory


def test_our_own_memory(ours):
    text = ctypes.create_string_buffer(b"0123456789")
    at = ctypes.addressof(text)
    assert ours.read(at, 4) == b"0123"
    assert ours.word(at) == int.from_bytes(b"01234567", "little")
    assert ours.c_string(at) == b"0123456789"


@pytest.mark.parametrize("address", [0, 8, 1 << 47, (1 << 64) - 8, -8])
def test_what_is_not_mapped_raises_and_does_nothing_else(ours, address):
    with pytest.raises(Unreadable):
        ours.word(address)


def test_sections_of_files(tmp_path):
    found = find_section(sys.executable, b".text")
    assert found is not None and found.size > 0 and found.ahead > 0
    assert find_section(sys.executable, b".te") is None
    for name, content in (("short", b"\x7fELF\x02\x01"), ("text", b"#!/bin/sh\n" * 20), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        assert find_section(str(tmp_path / name), b".text") is None


def test_a_process_without_an_interpreter_that_is_known(tmp_path):
    child = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "100")
    try:
        with pytest.raises(UnknownPython, match="no interpreter was found"):
            MemoryReader(child)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_version_that_is_not_known_is_named(ours, monkeypatch):
    table = b"xdebugpy" + (0x030F0000).to_bytes(8, "little") + bytes(8)
    held = ctypes.create_string_buffer(table)
    at = ctypes.addressof(held)
    monkeypatch.setattr("tuimon.agent.interpreter.debug_offsets._mapped_programs", lambda folder: [_Mapped(at)])
    monkeypatch.setattr("tuimon.agent.interpreter.debug_offsets.find_section", lambda *_: _Section())
    with pytest.raises(UnknownPython, match=r"the memory of Python 3\.15 is not known"):
        find_offsets(ours)


class _Mapped:
    path = "python"

    def __init__(self, start):
        self.start = start


class _Section:
    ahead = 0


def test_no_file_stays_open():
    before = sorted(os.listdir("/proc/self/fd"))
    memory = ProcessMemory(os.getpid())
    with memory, pytest.raises(Unreadable):
        memory.word(0)
    assert sorted(os.listdir("/proc/self/fd")) == before
