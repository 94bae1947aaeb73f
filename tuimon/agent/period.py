"""The period of a fast loop: the markers that it repeats, and what an untimed part of one must have held."""

from typing import List, NamedTuple, Optional, Tuple

from .ring.layout import BACKWARD_BEGIN, FETCH_BEGIN, FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END

#: Markers of the longest period that is searched for, and how often it must have come.
LONGEST = 36
REPEATS = 4
REPEATS_AGAIN = 2


class Period(NamedTuple):
    """Markers that repeat: pairs one after the other, an optimizer's the last; or the fetches of an evaluation."""

    length: int
    duration_ns: int
    iterator: int  # -1: no fetches
    begins: Tuple[int, ...]  # kinds, of all pairs
    fetches: int
    backwards: int
    updates: int

    def backwards_with(self, fetches: int, updates: int, kind: int) -> Tuple[int, bool]:
        """Backwards that belong to so many fetches and updates, and whether one more may have passed.

        ``kind``: of the marker after them. A backward that fails, or that no update follows, is not distinguished
        from one that was not called.
        """
        if not self.updates:  # of fetches alone: their backward would have had a marker
            return 0, False
        whole = min(updates // self.updates, fetches // self.fetches if self.fetches else updates)
        left = {FETCH_BEGIN: fetches - whole * self.fetches, OPTIMIZER_BEGIN: updates - whole * self.updates}
        is_before = kind == OPTIMIZER_BEGIN or (kind in (FETCH_BEGIN, FETCH_END) and any(left.values()))
        count, pending = whole * self.backwards, 0
        for begin in self.begins:
            if begin == BACKWARD_BEGIN:
                pending += 1
            elif left[begin]:
                left[begin] -= 1
                count += pending
                pending = 0
            elif begin == FETCH_BEGIN or not left[FETCH_BEGIN]:
                break
        count += pending if is_before else 0
        # more fetches than the period has before an update: it accumulates more batches now
        count += left[FETCH_BEGIN] * self.backwards // self.fetches if self.fetches else 0
        return count, pending > 0 and not is_before and kind not in (BACKWARD_BEGIN, OPTIMIZER_END)


def find_period(latest: List[Tuple[int, int, int, int, int]], known: Optional[Period]) -> Optional[Period]:
    """The shortest period that the latest markers (time, kind, flag, tid, value) have repeated; None without one."""
    keys = [(kind, value, tid) for _, kind, _, tid, value in latest]
    if not keys or keys[-1][0] != OPTIMIZER_END:
        return None
    for length in range(2, min(LONGEST, len(keys) // REPEATS_AGAIN) + 1, 2):
        if keys[-1 - length] != keys[-1] if length < len(keys) else True:
            continue
        template = keys[-length:]
        repeats = REPEATS_AGAIN if known is not None and known.length == length else REPEATS
        if len(keys) > repeats * length and keys[-repeats * length :] == template * repeats:
            flags = [flag for _, kind, flag, _, _ in latest[-repeats * length :] if kind == FETCH_END]
            duration_ns = (latest[-1][0] - latest[-1 - repeats * length][0]) // repeats
            return None if any(flags) else _regular(template, duration_ns)
    return None


def find_fetches(latest: List[Tuple[int, int, int, int, int]], repeats: int) -> Optional[Period]:
    """The period of an iterator that is only fetched from, if all the latest markers are such fetches; else None."""
    pairs = latest[-2 * repeats :]
    if len(latest) <= len(pairs):
        return None
    _, _, _, tid, iterator = pairs[-1]
    for at, (_, kind, flag, marked, value) in enumerate(pairs):
        if kind != FETCH_BEGIN + at % 2 or (marked, value) != (tid, iterator) or (kind == FETCH_END and flag):
            return None
    duration_ns = (pairs[-1][0] - latest[-1 - len(pairs)][0]) // repeats
    return Period(2, duration_ns, iterator, (FETCH_BEGIN,), 1, 0, 0) if iterator else None


def _regular(template: List[Tuple[int, int, int]], duration_ns: int) -> Optional[Period]:
    """The period, if it is one of pairs of one thread, with fetches of one iterator."""
    begins, ends = template[0::2], template[1::2]
    for (kind, value, tid), (end_kind, end_value, end_tid) in zip(begins, ends):
        if kind not in (FETCH_BEGIN, BACKWARD_BEGIN, OPTIMIZER_BEGIN) or end_kind != kind + 1:
            return None
        if value != end_value or tid != end_tid or tid != template[0][2]:
            return None
    kinds = [kind for kind, _, _ in begins]
    iterators = {value for kind, value, _ in begins if kind == FETCH_BEGIN}
    if len(iterators) > 1 or 0 in iterators or not kinds.count(BACKWARD_BEGIN):
        return None
    return Period(
        len(template),
        duration_ns,
        iterators.pop() if iterators else -1,
        tuple(kinds),
        kinds.count(FETCH_BEGIN),
        kinds.count(BACKWARD_BEGIN),
        kinds.count(OPTIMIZER_BEGIN),
    )
