"""Stacks of a training thread, in their phases."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuimon.records import Frame, LoopStack
from tuimon.session.stacks.loop import Fact, placed
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Trie

Counted = tuple[Sequence[Frame], int]

SITE = "/v/lib/python3.11/site-packages"
TORCH = f"{SITE}/torch"
FETCH = Frame(f"{TORCH}/utils/data/dataloader.py", 1, "__next__")
MODULE = Frame(f"{TORCH}/nn/modules/module.py", 2, "_call_impl")
BACKWARD = Frame(f"{TORCH}/_tensor.py", 3, "backward")
UPDATE = Frame(f"{TORCH}/optim/adam.py", 4, "step")
GRAD = Frame(f"{TORCH}/autograd/__init__.py", 5, "grad")


def own(line: int, source: str = "", *below: Frame, no_grad: tuple[int, int] | None = None) -> list[Frame]:
    """A stack at a line of the loop."""
    return [Frame("train.py", line, "main", source, True, no_grad=no_grad), *below]


FACTS: dict[str, Fact] = {
    "has_loader": "loader",
    "has_optimizer": "optimizer",
    "marks_evaluation": "evaluation",
    "forward_only": "steps",
}


def by_ids(
    stacks: Mapping[tuple[int, ...], int], trie: Trie, noted: Sequence[LoopStack] = (), **known: bool
) -> list[Sample]:
    """The sample of each stack of frame ids, root first; ``noted``: by the hooks; ``known``: of FACTS."""
    counts = {trie.node(ids): count for ids, count in stacks.items()}
    by_hooks = [Sample(trie.node(each.frames), 1, each.boundary) for each in noted]
    return list(placed(counts, {FACTS[name] for name, is_so in known.items() if is_so}, by_hooks))


def classified(counted: Iterable[Counted], **known: Any) -> list[Sample]:
    """The sample of each stack of frames, root first, that was seen so often; a frame has one id, as in a log.

    A torn stack has that of the frames that are left of it.
    """
    ids: dict[Frame, int] = {}
    numbered = [(tuple(ids.setdefault(frame, len(ids)) for frame in stack), count) for stack, count in counted]
    trie, stacks = Trie(), Counter[tuple[int, ...]]()
    trie.add_frames(0, list(ids))
    for stack, count in numbered:
        stacks[stack] += count
    found = {sample.node.ids: sample for sample in by_ids(stacks, trie, **known)}
    return [
        next(found[stack[:depth]] for depth in range(len(stack), 0, -1) if stack[:depth] in found)
        for stack, _ in numbered
    ]


def by_names(
    stacks: Mapping[str, int], frames: Mapping[str, Frame], noted: str = "", **known: bool
) -> dict[str, Sample]:
    """The sample of each stack of named frames, root first; ``noted``: the stack of a backward that hooks have told."""
    numbers, trie = {name: number for number, name in enumerate(frames)}, Trie()
    trie.add_frames(0, list(frames.values()))
    ids = {stack: tuple(numbers[name] for name in stack.split()) for stack in (noted, *stacks)}
    by_hooks = [LoopStack("backward", list(ids[noted]))] if noted else []
    found = by_ids({ids[stack]: count for stack, count in stacks.items()}, trie, by_hooks, **known)
    samples = {sample.node.ids: sample for sample in found}
    return {stack: samples[ids[stack]] for stack in stacks if ids[stack] in samples}


def last_of(*stacks: Sequence[Frame], count: int = 20, **known: Any) -> Sample:
    """The sample of the last of these stacks, each seen so often."""
    return classified([(stack, count) for stack in stacks], **known)[-1]
