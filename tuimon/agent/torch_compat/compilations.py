"""Reads the work of torch.compile from Dynamo's own records, if the program has imported Dynamo, and writes markers of
it.

No setting is changed, no callback registered, no lock taken. Dynamo keeps its last 64 compilations: if there are more
between two readings, the first are lost. The names are those of torch 2.2 to 2.13; what a version lacks is left out.
"""

import re
import sys
from time import monotonic_ns
from typing import Any, Dict, List, Set, Tuple

from ..outside import attempt
from ..ring import layout

#: Time between two readings, which take 2 us if nothing is new.
EVERY_NS = 500_000_000
#: Most different texts of one ring, whose table of names is shared with user ranges.
TEXTS_LIMIT = 96
#: Most graph breaks of one reading: a program that recompiles repeats those that it has.
_BREAKS_LIMIT = 64
_FUNCTIONS_LIMIT = 256

#: ``0/1: L['length'] == 7   # return x * length  # model.py:9 in forward``, the line since torch 2.4.
_COMPILE_ID = re.compile(r"\d+/\d+(?:_\d+)?: ")
_GUARDED = re.compile(r"#\s+(?:.*#\s+)?([^#]+:\d+) in \S+")
#: Numbers that are neither an index nor part of a name: they differ each time.
_NUMBER = re.compile(r"(?<![\w'\[.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w'\]])")
_SIZES = re.compile(r"\.? expected .*", re.DOTALL)


class _Read:
    """The position up to which Dynamo's records have been read for the present ring."""

    def __init__(self) -> None:
        self.due_ns = 0
        self.begin(None)

    def begin(self, newest: Any) -> None:
        self.newest = newest
        self.breaks = self.limits = self.skips = 0
        self.functions: Dict[str, layout.Code] = {}  # by number of the frame in ids of compilations
        self.latest: Tuple[layout.Code, str, str] = (layout.NO_CODE, "", "")  # that was compiled anew, and why
        self.texts: Set[str] = set()


reading = _Read()


def begin() -> None:
    """Start again for another ring; earlier compilations are not reported."""
    known = attempt(_metrics, sys.modules.get("torch._dynamo.utils"))
    reading.begin(known[-1] if known else None)


def report(runtime: Any) -> None:
    """Emit what is new, if the last reading is long enough ago; call it at the end of backward passes."""
    now_ns = monotonic_ns()
    if now_ns < reading.due_ns:
        return
    reading.due_ns = now_ns + EVERY_NS
    utils, writer = sys.modules.get("torch._dynamo.utils"), runtime.writer()
    if utils is None or writer is None:
        return
    for event in attempt(new_events, utils) or ():  # None with a torch that has other names
        runtime.emit(layout.COMPILER, event.value, writer.name_id(event_text(event)))


def new_events(utils: Any) -> List[layout.Event]:
    """The events since the last call. ``utils``: the module ``torch._dynamo.utils``."""
    before = dict(vars(reading))
    try:
        return _new_events(utils)
    except BaseException:
        vars(reading).update(before)  # so that it fails again
        raise


def _new_events(utils: Any) -> List[layout.Event]:
    found: List[layout.Event] = []
    metrics = _metrics(utils)
    new = next((at for at in range(len(metrics), 0, -1) if metrics[at - 1] is reading.newest), 0)
    if metrics:
        reading.newest = metrics[-1]
    for entry in metrics[new:]:
        found += _entry_events(entry, utils)
    found += _new_breaks(utils)
    counters = getattr(utils, "counters", {})
    unimplemented = list(counters.get("unimplemented", {}).items())
    limits = sum([count for text, count in unimplemented if _is_limit(text)])
    if limits > reading.limits:
        found.append(layout.Event(layout.LIMIT, limits - reading.limits, *reading.latest))
    skips = counters.get("inductor", {}).get("cudagraph_skips", 0)
    if skips > reading.skips:
        reasons = [reason for reason in (getattr(each, "cudagraph_skip_reason", None) for each in metrics) if reason]
        why = _failure_reason(str(reasons[-1])) if reasons else ""
        found.append(layout.Event(layout.NO_CUDA_GRAPHS, skips - reading.skips, layout.NO_CODE, why))
    reading.limits, reading.skips = limits, skips
    return found


def _metrics(utils: Any) -> List[Any]:
    return list(getattr(utils, "_compilation_metrics", ()))


def _entry_events(entry: Any, utils: Any) -> List[layout.Event]:
    """The events in Dynamo's notes on one compilation; one without a name is of a backward pass."""
    frame = str(getattr(entry, "compile_id", None) or "").partition("/")[0]
    name, failed = getattr(entry, "co_name", None), str(getattr(entry, "fail_reason", None) or "")
    code = (str(entry.co_filename), int(entry.co_firstlineno or 0), str(name)) if name else reading.functions.get(frame)
    if name and code and frame and len(reading.functions) < _FUNCTIONS_LIMIT:
        reading.functions[frame] = code
    reason = str(getattr(entry, "recompile_reason", None) or "")
    if name and code and not reason and (getattr(entry, "accumulated_cache_size", None) or entry.cache_size):
        # if compilations do not name their guard, the last one of the function that failed
        failures = list(getattr(utils, "guard_failures", {}).items())
        known = [why for of, why in failures if why and (of.co_filename, of.co_firstlineno, of.co_name) == code]
        reason = str(known[0][-1]) if known else "unknown"
    if code and reason:
        reading.latest = (code, *_guard(reason))
    if _is_limit(failed):  # the counter of these has it, in every version
        return []
    if not name or not code:
        return [layout.Event(layout.BACKWARD, _time_ns(entry), code or layout.NO_CODE)]
    compiled = layout.Event(layout.RECOMPILED if reason else layout.COMPILED, _time_ns(entry), code, *_guard(reason))
    if not failed:
        return [compiled]
    file, line = getattr(entry, "fail_user_frame_filename", None), getattr(entry, "fail_user_frame_lineno", None)
    at = (str(file), int(line or 0), code[2]) if file else code
    return [compiled, layout.Event(layout.GRAPH_BREAK, 1, at, _failure_reason(failed))]


def _time_ns(entry: Any) -> int:
    duration_us = getattr(entry, "duration_us", None)
    if duration_us is not None:
        return int(duration_us) * 1000
    whole_s = getattr(entry, "entire_frame_compile_time_s", None) or getattr(entry, "inductor_compile_time_s", None)
    return int(float(whole_s or 0.0) * 1e9)


def _guard(reason: str) -> Tuple[str, str]:
    """A guard without the numbers that differ each time, and the line that it is for.

    ``0/0: tensor 'x' size mismatch at index 1. expected 7, actual 9`` -> ``tensor 'x' size mismatch at index 1``.
    """
    text = _COMPILE_ID.sub("", reason.partition("\nUser stack")[0].strip(), count=1)
    line = _GUARDED.search(text)
    guard = text.partition("  #")[0].partition("\n")[0].strip()
    if "size mismatch" in guard:
        return _SIZES.sub("", guard), line[1].strip() if line else ""
    return _NUMBER.sub("N", guard), line[1].strip() if line else ""


def _new_breaks(utils: Any) -> List[layout.Event]:
    reasons = getattr(utils, "graph_break_reasons", ())
    known, reading.breaks = reading.breaks, len(reasons)
    found = []
    for reason in list(reasons[known if known <= len(reasons) else 0 :])[:_BREAKS_LIMIT]:
        stack = list(reason.user_stack)
        own = [frame for frame in stack if "-packages/" not in frame.filename] or stack
        if own:
            at = (str(own[-1].filename), int(own[-1].lineno or 0), str(own[-1].name))
            found.append(layout.Event(layout.GRAPH_BREAK, 1, at, _failure_reason(str(reason.reason))))
    return found


def _failure_reason(text: str) -> str:
    """``Failed to trace ...\n  Explanation: Dynamo does not know how to ...\n  Hint: ...`` -> its explanation."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    explained = next((line for line in lines if line.startswith("Explanation:")), "")
    return explained.partition(":")[2].strip() or (lines[0] if lines else "")


def _is_limit(text: str) -> bool:
    """True if Dynamo gave a function up after too many versions: ``cache_size_limit reached`` before torch 2.7."""
    return "limit reached" in text or "recompile limit exceeded" in text


def event_text(event: layout.Event) -> str:
    """The event as one string; if there are too many different ones, without the reason, then without the code too."""
    for reason in ((event.reason, event.guarded), ("", "")):
        text = layout.packed(event.what, event.code, reason)
        if text in reading.texts or len(reading.texts) < TEXTS_LIMIT:
            reading.texts.add(text)
            return text
    return layout.packed(event.what, layout.NO_CODE, ("", ""))
