"""The facts that a process reports of itself in its ring, checked field by field: it may have written anything."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from tuimon.agent.ring import paths
from tuimon.agent.ring.no_ring import reason_left_by
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.proc.loop_stacks import LoopStack, loop_stacks
from tuimon.records import OptimizerFacts
from tuimon.text import plain

#: Optimizers of one process, as many as an agent describes.
_OPTIMIZERS = 4


class RingFacts(Struct, frozen=True, gc=False):
    """Facts that a process reports; None, or empty, for those that are missing or of the wrong type."""

    run: str | None = None  # id of the ``tuimon run`` that started it
    output: str | None = None  # file that holds the output of that run
    rank: int | None = None
    world_size: int | None = None
    python: str | None = None  # versions
    torch: str | None = None
    gpu_uuids: tuple[str, ...] = ()
    parameter_dtypes: tuple[str, ...] = ()
    tf32: bool | None = None
    cudnn_tf32: bool | None = None
    matmul_dtypes: tuple[str, ...] = ()
    grad_scaler: bool | None = None
    optimizers: tuple[OptimizerFacts, ...] = ()
    intra_op_threads: int | None = None  # that share out an operation on the CPU
    debug_settings: tuple[str, ...] = ()  # that slow every step down
    vectors: str | None = None  # what torch's products on the CPU may use: "avx512_bf16"
    tracer: str | None = None  # a package that sees each of its calls or lines: cProfile, pdb, coverage
    cuda_visible_devices: str | None = None
    cuda_device_order: str | None = None
    planned_steps: int | None = None  # that its Trainer had still to make at first
    planned_epochs: int | None = None
    loop: tuple[LoopStack, ...] = ()  # where its loop calls backward and its optimizer


def ring_facts(meta: Mapping[str, object]) -> RingFacts:
    """The facts in ``RingReader.meta()``."""
    return RingFacts(
        run=_text(meta.get("run")),
        output=_text(meta.get("output")),
        rank=_number(meta.get("rank")),
        world_size=_number(meta.get("world_size")),
        python=_text(meta.get("python")),
        torch=_text(meta.get("torch")),
        gpu_uuids=_texts(meta.get("gpu_uuids")),
        parameter_dtypes=_texts(meta.get("parameter_dtypes")),
        tf32=_flag(meta.get("tf32")),
        cudnn_tf32=_flag(meta.get("cudnn_tf32")),
        matmul_dtypes=_texts(meta.get("matmul_dtypes")),
        grad_scaler=_flag(meta.get("grad_scaler")),
        optimizers=_optimizers(meta.get("optimizers")),
        intra_op_threads=_number(meta.get("intra_op_threads")),
        debug_settings=_texts(meta.get("debug_settings")),
        vectors=_text(meta.get("vectors")),
        tracer=_text(meta.get("tracer")),
        cuda_visible_devices=_text(meta.get("cuda_visible_devices"), empty=True),
        cuda_device_order=_text(meta.get("cuda_device_order")),
        planned_steps=_count(meta.get("planned_steps")),
        planned_epochs=_count(meta.get("planned_epochs")),
        loop=loop_stacks(meta.get("loop")),
    )


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


def _text(value: object, *, empty: bool = False) -> str | None:
    return value if isinstance(value, str) and (value or empty) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str) and item) if isinstance(value, list) else ()


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: object, limit: int = 1 << 31) -> int | None:
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    return number if number is not None and abs(number) < limit else None


def _count(value: object) -> int | None:
    number = _number(value, 1 << 62)
    return number if number is not None and number >= 0 else None


def _optimizers(value: object) -> tuple[OptimizerFacts, ...]:
    described = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return tuple(found for each in described[:_OPTIMIZERS] if (found := _optimizer(each)) is not None)


def _optimizer(described: Mapping[str, object]) -> OptimizerFacts | None:
    name, package = _text(described.get("name")), _text(described.get("package"))
    if name is None or package is None:
        return None
    return OptimizerFacts(
        name=name,
        package=package,
        fused=_flag(described.get("fused")),
        groups=_count(described.get("groups")),
        tensors=_count(described.get("tensors")),
        elements=_count(described.get("elements")),
    )
