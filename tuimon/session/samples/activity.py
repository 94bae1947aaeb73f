"""What a thread was doing at a sample, told by its innermost frames: a table of places and of source texts.

A call into C has no frame of its own: the line that makes it is the innermost one, and its text has to tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tuimon.records import Frame

Activity = Literal[
    "data", "idle", "lock", "ranks", "sync", "transfer", "torch", "compile", "import", "io", "sleep", "python"
]

#: How many of the innermost frames can tell: between a wait and who waits lie the layers of queue and connection.
_LOOK_AT = 12


class _Rule(NamedTuple):
    activity: Activity
    file: re.Pattern[str]
    function: re.Pattern[str]


def _rule(activity: Activity, file: str, function: str = "") -> _Rule:
    return _Rule(activity, re.compile(file), re.compile(f"(?:{function})$" if function else ""))


#: A frame in which nothing is computed: what it waits for is told by who called it.
_WAITS = (
    _rule("lock", r"(^|/)threading\.py$", "wait|acquire|join|_wait_for_tstate_lock|__enter__|wait_for"),
    _rule("io", r"(^|/)selectors\.py$", "select|_select"),
    _rule("lock", r"(^|/)queue\.py$", "get|put|join"),
    _rule("io", r"multiprocessing/(connection|popen_\w+|forkserver)\.py$", r"wait|_?poll|_?recv(_bytes)?"),
    _rule("lock", r"multiprocessing/(queues|synchronize|process)\.py$", "get|put|acquire|__enter__|wait|join"),
    _rule("lock", r"concurrent/futures/", "result|wait|as_completed"),
    _rule("io", r"(^|/)socket\.py$", "accept"),
    _rule("io", r"(^|/)subprocess\.py$", "wait|_wait|_try_wait|communicate|_communicate"),
)  # fmt: skip

#: Who waits: the first of these frames, from the innermost on, names the wait.
_WAITERS = (
    _rule("idle", r"torch/utils/data/_utils/(worker|pin_memory)\.py$", "_worker_loop|_pin_memory_loop|do_one_step"),
    _rule("data", r"torch/utils/data/(dataloader|_utils/\w+)\.py$"),
    _rule("ranks", r"torch/distributed/"),
    _rule("idle", r"multiprocessing/(queues|pool|managers)\.py$", r"_feed|worker|_handle_\w+|serve_forever"),
    _rule("idle", r"concurrent/futures/\w+\.py$", "_worker|run"),
    _rule("io", r"(^|/)(socket|ssl|http/client|urllib/request)\.py$|/(requests|urllib3|aiohttp|httpx|boto3|botocore)/"),
)

#: What the innermost frame that matches does.
_WORK = (
    _rule("import", r"^<frozen importlib|importlib/"),
    _rule("sync", r"torch/cuda/(__init__|streams|graphs)\.py$", "synchronize|wait|query"),
    _rule("sync", r"torch/_tensor\.py$", "__repr__|__format__|__str__|tolist|unique|__contains__|__array__"),
    _rule("sync", r"torch/_tensor_str\.py$"),
    _rule("ranks", r"torch/distributed/(?!optim|fsdp/_|checkpoint)\w+\.py$",
          r"all_reduce|barrier|broadcast|all_gather\w*|reduce_scatter\w*|wait|recv|send|monitored_barrier|wrapper"),
    _rule("compile", r"torch/_(dynamo|inductor|functorch)/|/triton/|torch/fx/"),
    _rule("io", r"torch/serialization\.py$|torch/distributed/checkpoint/"),
    _rule("io", r"(^|/)(socket|ssl|shutil|tempfile|gzip|lzma|bz2|zipfile|tarfile|pathlib|codecs)\.py$"),
    _rule("io", r"/(h5py|fsspec|lmdb|pyarrow|tensorboard|wandb|mlflow)/"),
    _rule("torch", r"(^|/)torch/(?!utils/data/)"),
)  # fmt: skip

#: Calls that the text of the innermost line betrays; the first that matches.
_TEXTS: tuple[tuple[Activity, re.Pattern[str]], ...] = (
    ("sleep", re.compile(r"\b(?:time\.)?sleep\(")),
    ("sync", re.compile(r"\.(?:item|tolist|nonzero|synchronize|masked_select)\(|\.cpu\(|\.numpy\(|\.to\(['\"]cpu")),
    ("sync", re.compile(r"\btorch\.(?:nonzero|unique|masked_select|isnan\(.*\)\.any|equal|allclose)\(")),
    ("transfer", re.compile(r"\.(?:to|cuda|pin_memory)\(|\.copy_\(")),
    ("lock", re.compile(r"\.(?:acquire|join|wait)\(\s*(?:timeout=)?[\d.]*\s*\)|\bwith [\w.]*lock\b")),
    ("io", re.compile(r"\bopen\(|\.(?:recv|recvfrom|sendall|read|readlines?|write|flush|fsync)\(|\bImage\.open")),
    ("io", re.compile(r"\b(?:torch|np|numpy|pickle|json)\.(?:load|save|loadtxt|dump)\(|\bread_(?:csv|parquet)\(")),
    ("torch", re.compile(r"\btorch\.|\bF\.\w+\(|\.backward\(|\bnn\.")),
)  # fmt: skip


def activity_of(stack: Sequence[Frame]) -> Activity:
    """What a stack (frames root first) shows its thread doing; ``python`` where nothing tells otherwise."""
    if not stack:
        return "python"
    inner = stack[: -_LOOK_AT - 1 : -1]
    waiting = _first(_WAITS, inner[:1])
    if waiting is not None:
        waiter = _first(_WAITERS, inner) or waiting
        # Where no code of the user's waits, it is a helper thread with nothing to do.
        helper = waiter in ("lock", "io") and not any(frame.user for frame in stack)
        return "idle" if helper else waiter
    leaf = inner[0]
    if leaf.user:
        return next((activity for activity, text in _TEXTS if text.search(leaf.source)), "python")
    if _first(_WAITERS, inner[:1]) == "idle":  # the loop itself: its queue is read in C
        return "idle"
    for frame in inner:
        if frame.user:
            break
        found = _first(_WORK, (frame,))
        if found is not None:
            return found
    return "python"


def _first(rules: Sequence[_Rule], inner: Sequence[Frame]) -> Activity | None:
    for frame in inner:
        for rule in rules:
            if rule.file.search(frame.file) and rule.function.match(frame.function.rpartition(".")[2]):
                return rule.activity
    return None
