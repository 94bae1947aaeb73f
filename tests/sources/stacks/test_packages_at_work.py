"""Packages other than torch that do the work of a line."""

import pytest

from tuimon.proc.target_files import OURS, TargetFiles
from tuimon.sources.source_text import SourceText
from tuimon.sources.stacks.frames.packages_at_work import PackagesAtWork

IMPORTS = """
import json, zlib as z
import numpy as np  # for the sampler
import os.path, torch
import torch.nn.functional as F
from scipy.optimize import (  # of the matcher
    linear_sum_assignment as assign,  # by costs
    minimize,
)
from .ops import fast

def late():
    from PIL import Image
"""
FILES = TargetFiles(None, ended=OURS)


@pytest.fixture
def packages(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(IMPORTS)
    return lambda text: PackagesAtWork(SourceText()).on_line(text, str(file), FILES)


@pytest.mark.parametrize(
    "text",
    [
        "scale = x @ w * np.sqrt(d)",  # torch multiplies
        "y = x / np.sqrt(x.size(1))",
        "y = torch.from_numpy(np.sort(a))",
        "y = F.softmax(np.log(a), -1)",
        "y = np.sqrt(x.exp())",  # whose method?
        "y = fast(np.sort(a))",  # one's own operation, compiled perhaps
        "total += np.sum(a)",
        "y = -x + np.sum(a)",
        "keep = x > np.median(a)",
        "text = json.dumps(row)",  # holds the GIL: samples show it
        "y = x @ w",
        "y = (np.sort(a),",  # goes on in the next line
        "else:",
        "",
    ],
)
def test_where_torch_may_be_at_work_nothing_is_said(packages, text):
    assert packages(text) == ""


def test_a_file_that_nobody_can_read_says_nothing(tmp_path):
    assert PackagesAtWork(SourceText()).on_line("np.sort(a)", str(tmp_path / "gone.py"), FILES) == ""
