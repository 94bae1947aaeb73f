"""The activity of a thread at a sample: by the files and functions of its innermost frames, and by source text.

A call into C has no frame of its own: the line that makes the call is the innermost one, and its text is what shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Literal

from tuimon import library_code, torch_code
from tuimon.bounds import MANY_HELD
from tuimon.code_origin import WITHIN, frame_test, is_agent_file, is_import_system, is_torch, package_of
from tuimon.records import Frame

Activity = Literal[
    "data", "idle", "lock", "ranks", "sync", "transfer", "torch", "compile", "import", "io", "sleep", "python"
]

OutsideWait = Literal["prompt", "file", "slow"]
#: What a training thread does that markers do not show ...
WorkBeside = Literal["import", "compile", "checkpoint", "network", "program", "prompt", "first batch"]
#: ... or what they divide.
Work = WorkBeside | Literal["none"]

#: How many of the innermost frames are inspected: between a wait and who waits lie the layers of queue and connection.
_INSPECTED_FRAMES = 12

#: A debugger or an interactive console.
_PROMPT = re.compile(
    r"(^|/)(?:pdb|bdb|cmd|code|codeop)\.py$|/(?:ipdb|pudb|IPython|ipykernel|ptpython|debugpy|pydevd)\w*/"
)

#: The text of a line that opens or reads a file.
_READS = re.compile(
    r"\bopen\(|\.(?:read|readlines?)\(|\bread_(?:csv|parquet)\(|\b(?:np|numpy|pickle|json)\.(?:load|loadtxt)\("
)

#: An activity, and whether a frame's file and function show it.
_Rule = tuple[Activity, Callable[[str, str], bool]]


def _place(activity: Activity, file: str, function: str = "") -> _Rule:
    """A rule by regular expressions: the file contains the first, the whole function name matches the second."""
    return activity, frame_test((file, function) if function else file)


#: A frame in which nothing is computed: what it waits for is shown by its callers.
_WAITS: tuple[_Rule, ...] = (
    _place("lock", r"(^|/)threading\.py$", "wait|acquire|join|_wait_for_tstate_lock|__enter__|wait_for"),
    _place("io", r"(^|/)selectors\.py$", "select|_select"),
    _place("lock", r"(^|/)queue\.py$", "get|put|join"),
    _place("io", r"multiprocessing/(connection|popen_\w+|forkserver)\.py$", r"wait|_?poll|_?recv(_bytes)?"),
    _place("io", r"multiprocessing/reduction\.py$", "recvfds"),  # a busy worker's thread is slow to answer
    _place("lock", r"multiprocessing/(queues|synchronize|process)\.py$", "get|put|acquire|__enter__|wait|join"),
    _place("lock", r"concurrent/futures/", "result|wait|as_completed"),
    _place("io", r"(^|/)socket\.py$", "accept"),
    _place("io", r"(^|/)subprocess\.py$", "wait|_wait|_try_wait|communicate|_communicate"),
)

#: Functions of such frames that wait for a lock.
_LOCKS = frozenset({"acquire", "__enter__"})

#: The modules in which one process waits for another's messages, or for its turn with it.
_MESSAGES = re.compile(r"multiprocessing/(?:connection|reduction|queues|synchronize)\.py$")
_RECEIVES = re.compile(r"\.recv\w*\(")
_SUBPROCESS = re.compile(r"subprocess\.py$")

#: Who waits: the first of these frames, from the innermost on, names the wait.
_WAITERS: tuple[_Rule, ...] = (
    ("idle", torch_code.is_loader_idle_loop),
    ("data", torch_code.is_loader_code),
    ("ranks", torch_code.is_distributed),
    _place("idle", r"multiprocessing/(queues|pool|managers)\.py$", r"_feed|worker|_handle_\w+|serve_forever"),
    _place("idle", r"concurrent/futures/\w+\.py$", "_worker|run"),
    ("io", library_code.is_network),
)

#: The work of the innermost frame that matches.
_WORK: tuple[_Rule, ...] = (
    ("import", is_import_system),
    _place("import", r"importlib/"),
    ("sync", torch_code.is_gpu_sync),
    ("ranks", torch_code.is_collective),
    ("compile", torch_code.is_compiler),
    ("io", torch_code.is_checkpoint_io),
    ("io", library_code.is_network),
    _place("io", r"(^|/)(shutil|tempfile|gzip|lzma|bz2|zipfile|tarfile|pathlib|codecs)\.py$"),
    _place("io", r"/(h5py|fsspec|lmdb|pyarrow|tensorboard|wandb|mlflow)/"),
    ("torch", lambda file, _: is_torch(file)),
)

#: A line that imports, and what.
_IMPORT = re.compile(r"\s*(?:from\s+([\w.]+)|import\s+([\w.]+)(?:\s+as\s+\w+)?\s*(,.*)?)")
#: The text of a line that waits for another program.
_PROGRAMS = re.compile(r"\bos\.(?:system|popen|wait(?:pid|id|3|4)?)\(|\bsubprocess\.(?:run|call|check_\w+)\(")
#: Calls that the text of the innermost line betrays; the first that matches.
_TEXTS: tuple[tuple[Activity, re.Pattern[str]], ...] = (
    ("sleep", re.compile(r"\b(?:time\.)?sleep\(")),
    ("sync", re.compile(r"\.(?:item|tolist|nonzero|synchronize|masked_select)\(|\.cpu\(|\.numpy\(|\.to\(['\"]cpu")),
    ("sync", re.compile(r"\btorch\.(?:nonzero|unique|masked_select|isnan\(.*\)\.any|equal|allclose)\(")),
    ("transfer", re.compile(r"\.(?:to|cuda|pin_memory)\(|\.copy_\(")),
    ("lock", re.compile(r"\.(?:acquire|join|wait)\(\s*(?:timeout=)?[\d.]*\s*\)|\bwith [\w.]*lock\b")),
    ("io", _PROGRAMS),
    ("io", re.compile(r"\bopen\(|\.(?:recv|recvfrom|sendall|read|readlines?|write|flush|fsync)\(|\bImage\.open")),
    ("io", re.compile(r"\b(?:torch|np|numpy|pickle|json)\.(?:load|save|loadtxt|dump)\(|\bread_(?:csv|parquet)\(")),
    ("torch", re.compile(r"\btorch\.|\bF\.\w+\(|\.backward\(|\bnn\.")),
)  # fmt: skip


def activity_of(stack: Sequence[Frame]) -> Activity:
    """The activity that a stack (frames root first) shows; ``python`` where nothing shows otherwise."""
    if not stack:
        return "python"
    inner = stack[: -_INSPECTED_FRAMES - 1 : -1]
    leaf = inner[0]
    wait = _wait(leaf.file, leaf.function)
    if wait is not None:
        waiter = _who_waits(inner) or wait
        # If no code of the user's waits, it is a helper thread with nothing to do. Compilers are other processes.
        if waiter not in ("lock", "io"):
            return waiter
        if not any(frame.user for frame in stack):
            return "idle"
        called = takewhile(lambda frame: not frame.user, inner)
        return "compile" if any(torch_code.waits_for_compiler(frame.file) for frame in called) else waiter
    if leaf.user:
        shown: Activity = next((activity for activity, text in _TEXTS if text.search(leaf.source)), "python")
        # the text is of the whole line: torch is called with the result of the comprehension or with the lambda
        return "python" if shown == "torch" and leaf.function in WITHIN else shown
    if _waiter(leaf.file, leaf.function) == "idle":  # the loop itself: its queue is read in C
        return "idle"
    of_call: Activity | None = None
    for frame in inner:
        if frame.user:
            break
        work = _work(frame.file, frame.function)
        if work is not None and not torch_code.is_operator_call(frame.file):
            return work
        of_call = of_call or work
    return of_call or "python"


def _who_waits(inner: Sequence[Frame]) -> Activity | None:
    """The wait that the innermost frame to name one shows; a caller of user code neither idles nor awaits data."""
    is_run = False
    for frame in inner:
        who = _waiter(frame.file, frame.function)
        if who is not None and not (who in ("idle", "data") and is_run):
            return who
        is_run = is_run or frame.user
    return None


def stands_in_wait(stack: Sequence[Frame]) -> bool:
    """True if the innermost frame is Python's own that waits, for a queue, an event or a connection; for no lock."""
    return bool(stack) and _wait(stack[-1].file, stack[-1].function) is not None and not takes_lock(stack)


def takes_lock(stack: Sequence[Frame]) -> bool:
    return bool(stack) and stack[-1].function.rpartition(".")[2] in _LOCKS


def _awaits(stack: Sequence[Frame], text: re.Pattern[str], file: re.Pattern[str]) -> bool:
    """True if the innermost line, of the user's, has such a text, or waits in such a file of Python's."""
    leaf = stack[-1] if stack else None
    if leaf is None or leaf.user:
        return leaf is not None and text.search(leaf.source) is not None
    return _wait(leaf.file, leaf.function) is not None and file.search(leaf.file) is not None


def awaits_process(stack: Sequence[Frame]) -> bool:
    """True if a stack waits for a message of another process, in multiprocessing or at a line of the user's."""
    return _awaits(stack, _RECEIVES, _MESSAGES)


def awaits_program(stack: Sequence[Frame]) -> bool:
    """True if a stack (root first) waits for the end of another program that it has started, such as ``pip``."""
    return _awaits(stack, _PROGRAMS, _SUBPROCESS)


#: Where Python's multiprocessing, and torch's, waits for a process that it has started.
_ENDS_OF_PROCESSES = (("multiprocessing/process.py", "join"), ("torch/multiprocessing/spawn.py", "join"))


def awaits_own_process(stack: Sequence[Frame]) -> bool:
    """True if a stack (root first) waits for the end of a program, or of a process, that it has started."""
    if awaits_program(stack):
        return True
    return any(
        frame.file.endswith(file) and frame.function == join for frame in stack for file, join in _ENDS_OF_PROCESSES
    )


def innermost_wait(frames: Sequence[Frame]) -> Literal["batch", "ranks"] | None:
    """True if a rank waits for other ranks or for a batch, with none of the user's code inside that wait."""
    for frame in reversed(frames):
        if frame.user:
            return None
        code = frame.file, frame.function
        if torch_code.is_collective(*code) or torch_code.is_backward_entry(*code):
            return "ranks"
        if torch_code.is_fetch(*code):
            return "batch"
    return None


def outside_wait(stack: Sequence[Frame]) -> OutsideWait | None:
    """The wait of a stack (root first) for something outside the training; None where it waits for nothing there.

    ``prompt``: somebody at a debugger or a console; ``file``: a file that is opened or read; ``slow``: what may rightly
    take long: a checkpoint, a file that is written, the network, another program, a sleep.
    """
    if not stack:
        return None
    if _is_at_prompt(stack):
        return "prompt"
    activity = activity_of(stack)
    if activity == "sleep":
        return "slow"
    if activity != "io":
        return None
    reads = stack[-1].user and _READS.search(stack[-1].source) is not None
    return "file" if reads and not any(torch_code.is_checkpoint_io(frame.file) for frame in stack) else "slow"


def _is_at_prompt(stack: Sequence[Frame]) -> bool:
    """True if a debugger or a console runs inside the user's code; a notebook's and a debugger's own run outside it."""
    inside = takewhile(lambda frame: not frame.user, reversed(stack))
    return "input(" in stack[-1].source or any(_PROMPT.search(frame.file) for frame in inside)


def _first(rules: Sequence[_Rule], file: str, function: str) -> Activity | None:
    bare = function.rpartition(".")[2]
    return next((activity for activity, matches in rules if matches(file, bare)), None)


_wait, _waiter, _work = (lru_cache(MANY_HELD)(partial(_first, rules)) for rules in (_WAITS, _WAITERS, _WORK))


def imported_by(frames: Sequence[Frame]) -> str | None:
    """The module that the outermost import of a stack (root first) imports; "" where it has no name, None without."""
    at = _import_depth(frames)
    if not at:
        return None
    statement = _IMPORT.match(frames[at - 1].source)
    name = (statement[1] or statement[2]) if statement is not None else ""
    if statement is not None and not statement[3] and not name.startswith("."):
        return name
    others = (frame.file for frame in frames[at:] if not is_agent_file(frame.file))
    package = next(filter(None, map(package_of, others)), "")
    return package or (f"{name}{(statement[3] or '').rstrip()}" if statement is not None else "")


def imported_for_compiler(frames: Sequence[Frame]) -> bool:
    """True if code that torch.compile has made, or makes, imports there: compilers are imported at their first use."""
    return any(torch_code.is_compiler(frame.file) for frame in frames[: _import_depth(frames)])


def _import_depth(frames: Sequence[Frame]) -> int:
    """The depth of the outermost import; 0 without one: the root is the program itself."""
    for depth, frame in enumerate(frames[1:], 1):
        is_module = not frame.user and torch_code.is_module_body(frame.file, frame.function)
        if is_module or is_import_system(frame.file):
            return depth
    return 0
