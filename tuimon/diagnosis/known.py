"""Which public knowledge (``knowledge.py``) applies to a line, a stack, or a thread."""

from __future__ import annotations

import re
from functools import lru_cache

from tuimon.diagnosis.knowledge import (
    AUGMENTING,
    BELOW,
    BY_LIBRARY,
    COMPRESSING,
    DIFFERENTIATED,
    GRADIENT_HOOKS,
    INNERMOST,
    POLLING,
    READ_WHOLE,
    SAVED_HOOKS,
    THREADS,
    THROUGH,
    UNCHANGED,
)
from tuimon.diagnosis.line_text import KnownWork, callee_at, most_at
from tuimon.native_code import KERNEL, CodeKind, NativeUse, kind_of
from tuimon.records import Place
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import StackNode, user_place
from tuimon.session.threads import ThreadRow
from tuimon.text import code_place, percent
from tuimon.threshold import LARGE, MOST
from tuimon.torch_code import multiplies

_TABLES = (DIFFERENTIATED, THROUGH, BELOW, INNERMOST)
_ANY_FRAME = (0, 1)  # of these tables
#: Products for which NumPy uses its own loops; with BLAS, most of the time would be in OpenBLAS or MKL.
#: https://numpy.org/doc/stable/reference/generated/numpy.dot.html
_WITHOUT_BLAS = KnownWork(
    "products that NumPy computes without BLAS",
    "convert both sides to float32 or float64 first, as BLAS multiplies neither integers nor float16; with einsum(),"
    " set optimize=True",
)
#: Kinds of libraries that reveal more about a line than its text does.
_UNPACKS: tuple[CodeKind, ...] = ("codec", "compression", "parser")
_NOT_SAMPLED = NativeUse()


def known_work_at(place: Place | None, *several: Samples, native: NativeUse = _NOT_SAMPLED) -> KnownWork | None:
    """Public knowledge about a line, by most samples of the given threads at it, and by the libraries that these run.

    Code that decodes or computes is also in the kernel, which clears fresh memory at first touch. So libraries are
    compared by their shares of the time in user code, unless they only move memory.
    """
    by_samples, user = most_at(place, several, known_work_in), native.without("kernel")
    if (
        place is None
        or not native
        or (by_samples is not None and by_samples.what in (UNCHANGED, COMPRESSING, AUGMENTING, READ_WHOLE))
    ):
        return by_samples
    ways: list[tuple[NativeUse, tuple[CodeKind, ...]]] = [(user, _UNPACKS)]
    if by_samples is None:
        ways += [(native, ("memory", "kernel")), (user, ("python",)), (user, ("arrays",))]
        if has_small_operations(native):
            # a loop of its function that does not lead to backward, which would make it the training's
            training = Samples.joined(several).where(phase="backward").through
            looped = most_at(place, several, lambda node: (node.user_line is not None and node.user_line.loop) or None)
            if looped is not None and place.code not in training:
                ways.append((user, ("torch", "python")))
    for use, kinds in ways:
        if (use.share(*kinds) or 0.0) >= MOST:
            shares = {name: share for name, share in use.by_library().items() if kind_of(name) in kinds}
            # the first kind is the most specific, if it has a large part
            large = [name for name, share in shares.items() if share >= LARGE] or [*shares][:1]
            large.sort(key=lambda name: kind_of(name) != kinds[0])
            if large[0] == "NumPy" and multiplies("", place.source):
                return _WITHOUT_BLAS
            faster = BY_LIBRARY.get(large[0]) or BY_LIBRARY[kind_of(large[0])]
            if large[0] == KERNEL and (user.share("python") or 0.0) >= MOST:  # no array is made or filled
                faster = BY_LIBRARY["system calls"]
            has = " and ".join(f"{_the(name)} has {percent(shares[name])}" for name in large)
            part = " outside the kernel" if use is user and (native.share("kernel") or 0.0) >= LARGE else ""
            callee = callee_at(place, several) if kinds[0] in ("python", "arrays") else None
            return KnownWork(callee or _the(large[0]), f"{faster}: {has} of the CPU time there{part}")
    return by_samples


def has_small_operations(native: NativeUse) -> bool:
    """True if operations are so small that calls, and room for their results, take much of the time."""
    return (native.without("kernel").share("python", "memory") or 0.0) >= LARGE


#: The longest that a read from a disk takes, in s: 6 ms was measured for a page with what the kernel reads ahead, on a
#: fast disk; the heads of a slow one move for about 10 ms. And the time of a page alone, measured on that fast disk.
_DISK_READ_S, _PAGE_READ_S = 0.01, 0.000_06


def known_page_reads(thread: ThreadRow, native: NativeUse) -> KnownWork | None:
    """Public knowledge about a thread whose major page faults explain most of the time in which it neither computes nor
    waits for a core; None if they do not, or it mostly computes.
    """
    if thread.faults is None or thread.cpu_ratio is None or thread.delay_ratio is None:
        return None
    reads, active = thread.faults.major_hz, 1.0 - thread.delay_ratio
    stalled = active - thread.cpu_ratio * (1.0 - (native.share("kernel") or 0.0))
    if stalled < MOST * active or reads * _DISK_READ_S < MOST * stalled:
        return None
    return KnownWork(
        "reads of a mapped file",
        "take rows in the order of the memory-mapped file, or copy it into memory; for small rows in any order,"
        f" turn off read-ahead with mmap.madvise(mmap.MADV_RANDOM): {reads:,.0f} pages a second are read from the disk",
        max(0.0, stalled - reads * _PAGE_READ_S) / active,
    )


def _the(library: str) -> str:
    return f"the {library}" if library in ("interpreter", KERNEL) else library


def figures(native: NativeUse) -> dict[str, float | int | str | None]:
    """The library with most of the time in user code, as evidence; and the kernel's part, if known."""
    if not native:
        return {}
    library, share = next(iter(native.without("kernel").by_library().items()), (None, None))
    return {"library": library, "library_share": share, "kernel_share": native.share("kernel") or None}


def known_work_in(node: StackNode) -> KnownWork | None:
    """Public knowledge about a stack: the first row of the first table that matches one of its frames."""
    if node.frame.polls:
        return KnownWork(POLLING, BELOW[POLLING][1])
    if (hook := node.hook) is not None:
        function, line = hook
        saves = "saved_tensors_hooks" in line.source if line is not None else "unpack" in function.function
        what, action = SAVED_HOOKS if saves else GRADIENT_HOOKS
        return KnownWork(what, action.format(f" (registered at {code_place(line)})" if line is not None else ""))
    if any(frame.skips for frame in node.frames):
        return KnownWork(READ_WHOLE, THROUGH[READ_WHOLE][1])
    innermost = (node.frame,)
    for table, frames in enumerate((node.frames, node.frames, node.called or innermost, innermost)):
        rows = [row for frame in frames if (row := _row(table, *frame.code, frame.text, frame.user)) is not None]
        if rows:
            return min(rows)[1]
    return None


def known_work_of(thread: ThreadRow, place: Place | None, samples: Samples) -> KnownWork | None:
    """Public knowledge about a thread beside the training: by its function, its line, or what it mostly does."""
    counts = samples.counted(lambda row: filter(None, (known_work_in(row.node),)))
    what, count = next(iter(counts.most_common(1)), (None, 0))
    known = what if count >= MOST * samples.total else known_work_at(place, samples, native=thread.native)
    option = next((option for function, option in THREADS.items() if function in thread.name), None)
    return KnownWork(known.what if known is not None else POLLING, option) if option is not None else known


def shown_at(known: KnownWork, node: StackNode) -> Place | None:
    """The outermost user's line whose own text shows it, of rows matched with any frame; None if none does."""
    for depth, frame in enumerate(node.frames, 1):
        rows = [_row(table, *frame.code, frame.text, True) for table in _ANY_FRAME] if frame.user else []
        if any(row is not None and row[1] == known for row in rows):
            return user_place(node.frames[:depth])
    return None


@lru_cache(4096)  # a run has some hundreds of frames
def _row(table: int, file: str, function: str, line: str, user: bool) -> tuple[int, KnownWork] | None:
    """The first row of a table that matches a frame, with the row's number; None if there is none."""
    text = f" {line}" if user else f"{file} {function} {line}"
    rows = enumerate(_TABLES[table].items())
    return next(((n, KnownWork(what, action)) for n, (what, (frame, action)) in rows if re.search(frame, text)), None)
