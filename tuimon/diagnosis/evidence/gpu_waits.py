"""Where the training thread waits for its GPU, told by samples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from tuimon.diagnosis.evidence.common import HotFunction, hottest_of
from tuimon.diagnosis.evidence.workers import MIN_SAMPLES
from tuimon.records import Frame
from tuimon.session.samples.activity import activity_of
from tuimon.session.samples.classify import Sample
from tuimon.session.session import Session
from tuimon.torch_code import is_grad_scaler

#: Calls that wait for the GPU, beside those that ``session.activity`` knows as synchronising: Python asks a tensor
#: for its value. Only told apart from the same words on plain numbers by being what a training thread waits in.
_ASKS_VALUE = re.compile(
    r"\b(?:if|elif|while|assert)\b.*(?:[<>]|[=!]=|\bnot\b)"
    r"|\b(?:float|int|bool|print)\(|\bis(?:nan|inf|finite)\(|\.(?:any|all)\(\)|\b(?:np|numpy)\.asarray\("
)


class Waits(NamedTuple):
    """Samples of the training thread in which it waits for its GPU; shares are of all its samples."""

    sync: float  # asks for a value, or synchronises
    transfer: float  # moves a tensor
    hot_sync: HotFunction | None
    hot_transfer: HotFunction | None
    by_phase: dict[str, float]  # both together


_waits: WeakKeyDictionary[Session, dict[int, tuple[int, Waits | None]]] = WeakKeyDictionary()


def waits_of(session: Session, pid: int) -> Waits | None:
    """None with too few samples. Several rules ask in turn: found anew only when there are new samples."""
    hotspots = session.hotspots(pid)
    if hotspots is None:
        return None
    known = _waits.setdefault(session, {})
    at, waits = known.get(pid, (-1, None))
    if at != hotspots.samples:
        waits = _find_waits(session, hotspots.samples_of(pid))
        known[pid] = (hotspots.samples, waits)
    return waits


def _find_waits(session: Session, samples: Sequence[Sample]) -> Waits | None:
    total = sum(sample.count for sample in samples)
    if total < 3 * MIN_SAMPLES:
        return None
    by_kind: dict[str, list[Sample]] = {"sync": [], "transfer": []}
    for sample in samples:
        kind = _waits_for_gpu([session.frames[number] for number in sample.stack])
        if kind is not None:
            by_kind[kind].append(sample)
    sync, transfer = by_kind["sync"], by_kind["transfer"]
    by_phase: Counter[str] = Counter()
    for sample in (*sync, *transfer):
        by_phase[sample.phase] += sample.count
    return Waits(
        sync=sum(s.count for s in sync) / total,
        transfer=sum(s.count for s in transfer) / total,
        hot_sync=_hottest(session, sync),
        hot_transfer=_hottest(session, transfer),
        by_phase={name: n / total for name, n in by_phase.items()},
    )


def _waits_for_gpu(stack: Sequence[Frame]) -> str | None:
    """``sync`` or ``transfer``; None for anything else."""
    doing = activity_of(stack)
    if doing in ("sync", "transfer"):
        return doing
    leaf = stack[-1] if stack else None
    if leaf is None:
        return None
    if leaf.user and doing in ("python", "torch") and _ASKS_VALUE.search(leaf.source):
        return "sync"
    return "sync" if is_grad_scaler(leaf.file) else None


def _hottest(session: Session, samples: Sequence[Sample]) -> HotFunction | None:
    return hottest_of((session.frames.user_place(sample.stack), sample.count) for sample in samples)
