"""Which lines of a program set how many threads share an operation, or how many workers load."""

import pytest

from tuimon.records import CountSettings
from tuimon.sources.source_facts import FileFacts

SCRIPT = b"""\
import torch

def main(args):
    if args.threads:
        torch.set_num_threads(args.threads)

    class Data:
        size = 3
    loader = DataLoader(Data(), num_workers=4)  # num_workers=8 was slower


main(parse())
"""


def test_each_has_its_line_and_function():
    assert list(FileFacts(SCRIPT.splitlines()).counts) == [
        CountSettings("threads", 5, "main", "torch.set_num_threads(args.threads)"),
        CountSettings("workers", 9, "main", "loader = DataLoader(Data(), num_workers=4)  # num_workers=8 was slower"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'os.environ["OMP_NUM_THREADS"] = "8"',
        b"os.environ['MKL_NUM_THREADS']='8'",
        b'os.environ.setdefault("OMP_NUM_THREADS", "8")',
        b"set_num_threads(8)",
    ],
)
def test_ways_to_set_threads(line):
    assert [(found.what, found.function) for found in FileFacts([line]).counts] == [("threads", "<module>")]


@pytest.mark.parametrize(
    "line",
    [
        b"psutil.Process().cpu_affinity()",
        b'threads = os.environ["OMP_NUM_THREADS"]',
        b'threads = os.environ.get("OMP_NUM_THREADS", "1")',
        b'if os.environ["OMP_NUM_THREADS"] == "1": pass',
        b"# torch.set_num_threads(8)",
        b"sys.settrace(None)",
        b"def set_num_threads(count): pass",
        b"if loader.num_workers == 0: pass",
        b'parser.add_argument("--num_workers", default=4)',
    ],
)
def test_what_only_reads_or_names_them_sets_nothing(line):
    assert FileFacts([line]).counts == ()


def test_a_file_without_end_tells_few():
    assert len(FileFacts([b"loader = DataLoader(data, num_workers=4)"] * 99).counts) == 4
