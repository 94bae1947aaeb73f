"""Cells of a notebook, as its agent leaves them."""

import json
import os

import pytest

from tuimon.agent.ring import files
from tuimon.agent.ring.files import CELLS, side_file
from tuimon.proc.ring_facts import RawFrame
from tuimon.proc.target_files import TargetFiles, cell_of
from tuimon.records import Frame
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.source_text import SourceText
from tuimon.sources.standstill import has_left

FILE = "/tmp/ipykernel_77/123456.py"


@pytest.fixture
def left(monkeypatch, tmp_path):
    """Leaves cells as an agent in this process would."""
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path))

    def leave(content):
        with open(side_file(files.ring_path(os.getpid()), CELLS), "w") as file:
            file.write(content if isinstance(content, str) else json.dumps({"cells": content}))

    return leave


def test_a_cell_is_known_by_its_file_and_by_its_name(left):
    left([[FILE, 4, "x = 1\nfor each in y:\n    pass\n"]])
    cell = cell_of(os.getpid(), FILE)
    assert cell == cell_of(os.getpid(), "In[4]") and cell.name == "In[4]"
    at = ProcessCode(TargetFiles(os.getpid())).frame(
        RawFrame(FILE, 2, "fit")
    )  # as samples, standstills and memory name it
    assert (at.file, at.line, at.source, at.user) == ("In[4]", 2, "for each in y:", True)
    assert cell_of(os.getpid(), "In[5]") is None
    assert SourceText().line(FILE, 2, TargetFiles(os.getpid())) == "for each in y:"
    assert [number for number, _ in SourceText().around("In[4]", 2, 1, TargetFiles(os.getpid()))] == [1, 2, 3]


def test_a_loop_of_a_cell_is_left_below_it(left):
    left([[FILE, 4, "for each in y:\n    fit(each)\nserve()\n"]])
    outer, code = RawFrame(os.__file__, 1, "<module>"), ProcessCode(TargetFiles(os.getpid()))
    trained = [outer, Frame("In[4]", 2, "<module>")]  # as records name it
    assert has_left([outer, RawFrame(FILE, 3, "<module>")], trained, code)
    assert not has_left([outer, RawFrame(FILE, 1, "<module>")], trained, code)


def test_cells_that_are_left_anew_are_read_anew(left):
    left([[FILE, 4, "x"]])
    assert cell_of(os.getpid(), FILE).text == b"x"
    left([[FILE, 6, "other"]])
    path = side_file(files.ring_path(os.getpid()), CELLS)
    os.utime(path, ns=(1, os.stat(path).st_mtime_ns + 1))  # within one tick of the file system's clock
    assert cell_of(os.getpid(), FILE).name == "In[6]"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cells": [[1, 2, 3]]}', '{"cells": [["f", 1]]}', "\0"])
def test_what_is_no_list_of_cells_is_none(left, content):
    left(content)
    assert cell_of(os.getpid(), FILE) is None
