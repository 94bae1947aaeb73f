"""Packages other than torch that do the work of a line."""

import pytest

from tuimon.sources.source_facts import FileFacts
from tuimon.sources.stacks.frames.packages_at_work import packages_at_work

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


@pytest.fixture
def packages():
    return lambda text: packages_at_work(text, FileFacts(IMPORTS.encode().splitlines()).imports)


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
