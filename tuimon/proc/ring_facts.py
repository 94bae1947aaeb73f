"""The facts that a process reports of itself in its ring, checked field by field: it may have written anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tuimon.agent.ring import paths
from tuimon.agent.ring.files import reason_left_by
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.proc.loop_stacks import Frames, LoopStack, loop_stacks, reported_frames
from tuimon.records import Count, Index, OptimizerFacts
from tuimon.text import plain

_Text = Annotated[str, Meta(min_length=1)]
#: As many as an agent describes.
_Optimizers = Annotated[tuple[OptimizerFacts, ...], Meta(max_length=4)]


class RingFacts(Struct, frozen=True, gc=False):
    """Facts that a process reports; None, or empty, for those that are missing or of the wrong type."""

    run: _Text | None = None  # id of the ``tuimon run`` that started it
    output: _Text | None = None  # file that holds the output of that run
    rank: Index | None = None
    world_size: Index | None = None
    python: _Text | None = None  # versions
    torch: _Text | None = None
    gpu_uuids: tuple[_Text, ...] = ()
    parameter_dtypes: tuple[_Text, ...] = ()
    tf32: bool | None = None
    cudnn_tf32: bool | None = None
    matmul_dtypes: tuple[_Text, ...] = ()
    grad_scaler: bool | None = None
    optimizers: _Optimizers = ()
    intra_op_threads: Index | None = None  # that share out an operation on the CPU
    debug_settings: tuple[_Text, ...] = ()  # that slow every step down
    vectors: _Text | None = None  # what torch's products on the CPU may use: "avx512_bf16"
    tracer: _Text | None = None  # a package that sees each of its calls or lines: cProfile, pdb, coverage
    cuda_visible_devices: str | None = None
    cuda_device_order: _Text | None = None
    planned_steps: Count | None = None  # that its Trainer had still to make at first
    planned_epochs: Count | None = None
    error: _Text | None = None  # that ended the program: its text, which may hold a traceback of another process
    raised_ns: Count | None = None
    raised_in: Frames = ()  # frames that it passed through
    loop: tuple[LoopStack, ...] = ()  # where its loop calls backward and its optimizer


#: All but the stacks, which have a form of their own.
_TYPES = {each.name: each.type for each in msgspec.structs.fields(RingFacts) if each.name not in ("loop", "raised_in")}


def ring_facts(meta: Mapping[str, object]) -> RingFacts:
    """The facts in ``RingReader.meta()``."""
    known: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        if meta.get(name) is not None:
            with suppress(msgspec.ValidationError):
                known[name] = msgspec.convert(meta[name], kind)
    raised_in = reported_frames(meta.get("raised_in"), "frames")
    return RingFacts(**known, raised_in=raised_in, loop=loop_stacks(meta.get("loop")))


def read_ring_facts(pid: int, start_ticks: int) -> RingFacts | None:
    """The facts of a live process; None without a ring, all unknown while they are being written."""
    try:
        reader = RingReader(paths.ring_path(pid))
    except (OSError, RingError, ValueError):
        return None
    try:
        return ring_facts(reader.meta()) if reader.start_ticks == start_ticks else None
    finally:
        reader.close()


def ring_folders() -> list[str]:
    """The folders in which this user's rings are searched for."""
    return [os.path.abspath(folder) for folder in paths.ring_directories()]


def why_no_ring(pid: int) -> str | None:
    """Why a process could make no ring, as it reports itself; None where it does not. About 1 us a descriptor."""
    reason = reason_left_by(pid)
    return None if reason is None else plain(reason)
