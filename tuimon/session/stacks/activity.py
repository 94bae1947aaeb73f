"""The activity of a thread at a sample, by the files, functions and source text of its innermost frames.

A call into C has no frame of its own: the line that makes the call is the innermost one, and its text is what shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Literal, get_args

from tuimon import library_code, torch_code
from tuimon.bounds import MANY_HELD
from tuimon.code_origin import (
    WITHIN,
    frame_test,
    is_agent_file,
    is_import_system,
    is_library_file,
    is_torch,
    package_of,
)
from tuimon.records import Frame
from tuimon.text import without_comment

#: ``data``: for a batch of a DataLoader; ``idle``: for work; ``thread``: for what another thread does, at a queue, an
#: event, a future, its end; ``message``: for one of another process; ``child``: for the end of a process or program
#: that it has started; ``connection``: for the next event; ``sync``: for the GPU; ``prompt``: for somebody at a
#: debugger or a console. ``io`` and ``network`` may be work as well.
Wait = Literal[
    "data", "idle", "lock", "thread", "message", "child", "connection", "ranks", "sync", "sleep", "prompt", "io",
    "network",
]  # fmt: skip
Activity = Wait | Literal["transfer", "torch", "compile", "import", "python"]
#: Activities during which a thread does not hold the GIL.
WAITS: frozenset[Activity] = frozenset(get_args(Wait))
#: Waits for other processes, even if a thread of this process hands over their messages.
_PROCESS_WAITS = ("message", "child")
#: Waits for others in the program, or for work.
FOR_OTHERS: frozenset[Activity] = frozenset(("idle", "lock", "thread", "message"))

#: Work of a training thread that markers do not show ...
WorkBeside = Literal["import", "compile", "checkpoint", "network", "program", "prompt", "first batch"]
#: ... or what they divide.
Work = WorkBeside | Literal["none"]

#: The number of innermost frames that are inspected: the layers of queue and connection lie between the wait and the
#: code that waits.
_INSPECTED_FRAMES = 12

#: A debugger or an interactive console, and a line that reads from one.
_PROMPT = re.compile(r"(^|/)(?:pdb|cmd|code|codeop)\.py$|/(?:ipdb|pudb|IPython|ipykernel|ptpython|debugpy|pydevd)\w*/")
_INPUT = re.compile(r"(?<![\w.])input\(")

#: An activity, and whether a frame's file and function show it.
_Rule = tuple[Activity, Callable[[str, str], bool]]


def _place(activity: Activity, file: str, function: str = "") -> _Rule:
    """A rule by regular expressions: the file contains the first, the whole function name matches the second."""
    return activity, frame_test((file, function) if function else file)


#: Frames in which nothing is computed: the activity, unless a caller names a more specific wait.
_WAITS: tuple[_Rule, ...] = (
    _place("lock", r"(^|/)threading\.py$|multiprocessing/(queues|synchronize)\.py$", "acquire|__enter__"),
    _place("lock", r"-packages/(fasteners|filelock|portalocker)/", r"\w*acquire\w*|lock"),  # of files
    _place("thread", r"(^|/)threading\.py$", "wait|join|_wait_for_tstate_lock|wait_for"),
    _place("thread", r"(^|/)queue\.py$", "get|put|join"),
    _place("thread", r"concurrent/futures/", "result|wait|as_completed"),
    _place("message", r"multiprocessing/connection\.py$", r"wait|_?poll|_?recv(_bytes)?"),
    _place("message", r"multiprocessing/reduction\.py$", "recvfds"),  # a busy worker's thread is slow to answer
    _place("message", r"multiprocessing/(queues|synchronize)\.py$", "get|put|wait|join"),
    _place("child", r"multiprocessing/(process|popen_\w+|forkserver|spawn)\.py$", r"wait|_?poll|join|_?recv(_bytes)?"),
    _place("child", r"(^|/)subprocess\.py$", r"_?wait|_try_wait|_?communicate|run|call|check_\w+"),
    _place("connection", r"(^|/)selectors\.py$", "select|_select"),
    _place("connection", r"(^|/)socket\.py$", "accept"),
    _place("connection", r"(^|/)sched\.py$", "run"),
)

#: The code that waits: the first of these frames, from the innermost on, names the wait.
_WAITERS: tuple[_Rule, ...] = (
    ("idle", torch_code.is_loader_idle_loop),
    ("data", torch_code.is_loader_code),
    ("ranks", torch_code.is_distributed),
    _place("idle", r"multiprocessing/(queues|pool|managers)\.py$", r"_feed|worker|_handle_\w+|serve_forever"),
    _place("idle", r"concurrent/futures/\w+\.py$", "_worker|run"),
)

#: The work of the innermost frame that matches.
_WORK: tuple[_Rule, ...] = (
    ("import", is_import_system),
    _place("import", r"importlib/"),
    ("sync", torch_code.is_gpu_sync),
    ("ranks", torch_code.is_collective),
    ("compile", torch_code.compiles),
    ("torch", torch_code.is_compiler),  # compiled code runs
    ("io", torch_code.is_checkpoint_io),
    ("network", library_code.is_network),
    _place("io", r"(^|/)(shutil|tempfile|gzip|lzma|bz2|zipfile|tarfile|pathlib|codecs)\.py$"),
    _place("io", r"/(h5py|fsspec|lmdb|pyarrow|tensorboard|wandb|mlflow)/"),
    ("torch", lambda file, _: is_torch(file)),
)

#: A line that imports, and the module.
_IMPORT = re.compile(r"\s*(?:from\s+([\w.]+)|import\s+([\w.]+)(?:\s+as\s+\w+)?\s*(,.*)?)")
#: Calls that the text of the innermost line betrays; the first that matches.
_TEXTS: tuple[tuple[Activity, re.Pattern[str]], ...] = (
    ("sleep", re.compile(r"\b(?:time\.)?sleep\(")),
    ("ranks", re.compile(r"\bnew_group\(")),  # with the end of the group before, in C
    ("message", re.compile(r"\.recv\w*\(|\bin (?:\w+\.)*std(?:in|out)\b|\bstd(?:in|out)\.(?:buffer\.)?read")),
    ("connection", re.compile(r"\bselect\.select\(|\.poll\(|\bsignal\.(?:pause|sig(?:timed)?wait(?:info)?)\(")),
    ("child", re.compile(r"\bos\.(?:system|popen|wait(?:pid|id|3|4)?)\(|\bsubprocess\.(?:run|call|check_\w+)\(")),
    ("sync", re.compile(r"\.(?:item|tolist|nonzero|synchronize|masked_select)\(|\.cpu\(|\.numpy\(|\.to\(['\"]cpu")),
    ("sync", re.compile(r"\btorch\.(?:nonzero|unique|masked_select|isnan\(.*\)\.any|equal|allclose)\(")),
    ("transfer", re.compile(r"\.(?:to|cuda|pin_memory)\(|\.copy_\(")),
    ("lock", re.compile(r"\.acquire\(\s*(?:timeout=)?[\d.]*\s*\)|\bwith [\w.]*lock\b")),
    ("lock", re.compile(r"\b(?:flock|lockf)\((?!.*LOCK_UN)")),
    ("thread", re.compile(r"\.(?:join|wait)\(\s*(?:timeout=)?[\d.]*\s*\)")),
    ("io", re.compile(r"\bopen\(|\.(?:sendall|read|readlines?|write|flush|fsync)\(|\bImage\.open")),
    ("io", re.compile(r"\b(?:torch|np|numpy|pickle|json)\.(?:load|save|loadtxt|dump)\(|\bread_(?:csv|parquet)\(")),
    ("torch", re.compile(r"\btorch\.|\bF\.\w+\(|\.backward\(|\bnn\.")),
)  # fmt: skip
#: A line that enters a lock's block, ``with self.lock:``, if a lock is all that the block's head names, or acquires it.
_AT_LOCK = re.compile(r"with\s+[A-Za-z_][\w.\[\]'\"]*(\s+as\s+\w+)?\s*[:,]|[\w\])]\.acquire\s*\(")
#: Calls into C at which a thread that does not move waits.
_CALLS: dict[str, Activity] = {
    **dict.fromkeys(("get", "put", "result", "wait", "join"), "thread"),
    **dict.fromkeys(("accept", "select", "poll"), "connection"),
}


def activity_of(stack: Sequence[Frame]) -> Activity:
    """The activity that a stack (frames root first) shows; ``python`` if no frame shows any other."""
    if not stack:
        return "python"
    leaf, called = stack[-1], [*takewhile(lambda frame: not frame.user, reversed(stack))]
    source = without_comment(leaf.source)
    if _INPUT.search(source) or any(_PROMPT.search(frame.file) for frame in called):
        return "prompt"
    if leaf.user:
        shown: Activity = next((activity for activity, text in _TEXTS if text.search(source)), "python")
        # the text is of the whole line: torch is called with the result of the comprehension or with the lambda
        return "python" if shown == "torch" and leaf.function in WITHIN else shown
    works = [
        work
        for frame in called
        if (work := _work(frame.file, frame.function)) is not None and not torch_code.is_operator_call(frame.file)
    ]
    if (at := _wait(leaf.file, leaf.function)) is not None:
        waits = _waits(stack, called, at)
        is_networks = any(library_code.is_network(frame.file) for frame in called[1:])
        return "network" if is_networks and waits not in ("data", "idle", "ranks") else waits
    if _waiter(leaf.file, leaf.function) == "idle":  # the loop itself: its queue is read in C
        return "idle"
    if "compile" in works:
        return "compile"
    if "network" in works and "import" not in works:
        return "network"
    return works[0] if works else "torch" if any(is_torch(frame.file) for frame in called) else "python"


def _waits(stack: Sequence[Frame], called: Sequence[Frame], at: Activity) -> Activity:
    """The activity of a stack whose frame ``at`` is a wait of Python: the innermost frame that names a wait decides."""
    by_user = by_library = False
    for frame in stack[-2 : -_INSPECTED_FRAMES - 1 : -1]:
        who = _waiter(frame.file, frame.function)
        if who == "data" and (by_user or by_library):
            break  # the loader has called code that waits itself
        if who is not None and not (who == "idle" and by_user):
            return who
        by_user, by_library = by_user or frame.user, by_library or is_library_file(frame.file)
    else:
        if not any(frame.user for frame in stack):
            return "idle"  # no user code waits: it is a helper thread with nothing to do
    if any(torch_code.waits_for_compiler(frame.file) for frame in called):  # compilers are other processes
        return "compile"
    if at == "lock" or _enters_lock(stack):
        return "lock"
    kinds = (_wait(frame.file, frame.function) for frame in reversed(called))
    return next((kind for kind in kinds if kind in _PROCESS_WAITS), at)


def standing_activity(stack: Sequence[Frame]) -> Activity:
    """The activity of a thread that does not move: any call that may wait does; backward waits for ranks."""
    activity = "thread" if is_at_exit(stack) else activity_of(stack)
    if activity == "network":  # a server waits like any other thread
        return _wait(stack[-1].file, stack[-1].function) or activity
    if not stack or (activity in WAITS and activity != "sync"):
        return activity
    for frame in takewhile(lambda frame: not frame.user, reversed(stack)):
        code = frame.file, frame.function
        if torch_code.is_collective(*code) or torch_code.is_backward_entry(*code):
            return "ranks"
        if torch_code.is_fetch(*code):
            return "data"
    if _enters_lock(stack):
        return "lock"
    calls = outer_calls(stack[-1].source) if stack[-1].user else []
    return next((_CALLS[name] for name in calls if name in _CALLS), activity)


def _enters_lock(stack: Sequence[Frame]) -> bool:
    """True if a thread stands at a lock, by its line's text; locks that are written in Python wait in threading."""
    inner = next((frame for frame in reversed(stack) if not frame.file.endswith("threading.py")), None)
    return inner is not None and inner.user and _AT_LOCK.search(inner.source) is not None


def is_at_exit(stack: Sequence[Frame]) -> bool:
    """True if a program has come to its end, and Python waits for its threads that are not daemons."""
    return bool(stack) and stack[0].function == "_shutdown" and stack[0].file.endswith("threading.py")


_CALL = re.compile(r"\b([A-Za-z_][\w.]*)\(")
_DEFINES = re.compile(r"^\s*(?:async\s+)?(?:def|class)\b")


def outer_calls(source: str) -> list[str]:
    """The bare names of the calls that no other encloses: ``["open"]`` of ``with io.open(join(a, b)) as f:``.

    Python code that the line calls has a frame of its own: if the line is innermost, only calls into C are left.
    """
    return [name.rpartition(".")[2] for name in outer_call_names(source)]


def outer_call_names(source: str) -> list[str]:
    """The calls that no other encloses, as they are written: ``["io.open"]``."""
    source = without_comment(source)
    if _DEFINES.match(source):
        return []
    depth, outer, until = 0, [], 0
    for found in _CALL.finditer(source):
        depth += source.count("(", until, found.start()) - source.count(")", until, found.start())
        until = found.start()
        if depth <= 0:
            outer.append(found[1])
    return outer


def _first(rules: Sequence[_Rule], file: str, function: str) -> Activity | None:
    bare = function.rpartition(".")[2]
    return next((activity for activity, matches in rules if matches(file, bare)), None)


_wait, _waiter, _work = (lru_cache(MANY_HELD)(partial(_first, rules)) for rules in (_WAITS, _WAITERS, _WORK))


def imported_at(frames: Sequence[Frame], at: int) -> str:
    """The module that a stack (root first) imports from the frame ``at`` this depth on; "" if it has no name."""
    statement = _IMPORT.match(frames[at - 1].source)
    name = (statement[1] or statement[2]) if statement is not None else ""
    if statement is not None and not statement[3] and not name.startswith("."):
        return name
    others = (frame.file for frame in frames[at:] if not is_agent_file(frame.file))
    package = next(filter(None, map(package_of, others)), "")
    return package or (f"{name}{(statement[3] or '').rstrip()}" if statement is not None else "")
