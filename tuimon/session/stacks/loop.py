"""The loop of a training thread: the paths to its model, to backward and to the update, and where stacks leave them.

A path is a stack's frames from the root down to a boundary. Another stack follows it as long as its frames are the same
functions at the same lines, and leaves it at a frame with another line, or by a call that is not on it. The lines down
to there are its position; positions order as tuples do, as the loop comes to them. So a loop of the user's and one that
a library owns are read alike::

    main                              fit
    44  for x, y in loader:           484    run_epoch(loader)
    45      x = augment(x)                       493    x = augment(x)             before the model: data
    46      loss = cost(model(x), y)             497    out = network(x)           from it to backward: forward
    47      loss.backward()                      501    loss.backward()            the path: (47,), and (484, 501)
    48      log(loss)                 486    callbacks.on_batch_end()              after it: side work
    49      optimizer.step()          487    optimizer.step()

Frames of libraries that dispatch calls differ from stack to stack: those that are not on the path are passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from tuimon.records import LoopStack
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import UPDATES, Function, KnownFrame, Stack, StackNode, Trie, to_user

#: A place leads to an update if more than 1 in 9 of its samples are in updates, and more than 1 in 64 of the updates'
#: samples are its own: our choice. py-spy reads a running process, so a stack may be made of two successive ones.
_OF_PLACE, _OF_UPDATES = 9, 64
#: Lines of the functions on a path from the outermost on, the last that of the frame that leaves it.
Position = tuple[int, ...]


class Leaving(NamedTuple):
    """The place at which a stack leaves a path."""

    position: Position
    depth: int  # in the stack, of the last frame on the path
    on_line: bool  # at the path's own line


class Path:
    """Frames from the root down to a boundary."""

    def __init__(self, stack: Stack = ()) -> None:
        frames = [frame for frame in stack if frame.user or "library" in frame.roles]
        self.position: Position = tuple(frame.line for frame in frames)
        self._frames = frames
        self.is_users = any(frame.user for frame in frames)
        self.passes_optimizer = any(frame.kind == "optimizer" for frame in stack)
        self._left: dict[StackNode, Leaving | None] = {}

    def is_before(self, left: Leaving, position: Position) -> bool:
        """True if a stack leaves the path before a position, unless it does so in the user's line that leads there."""
        ahead = self._frames[len(left.position) : len(position)]
        return left.position < position and (not left.on_line or any(frame.user for frame in ahead))

    def leave(self, node: StackNode) -> Leaving | None:
        """The place at which a stack leaves the path; None for a stack that does not begin with the path's first
        frames.
        """
        if node not in self._left:
            self._left[node] = self._leave(node.frames)
        return self._left[node]

    def _leave(self, stack: Stack) -> Leaving | None:
        on, left = -1, None
        for depth, frame in enumerate(stack):
            found = self._next(frame, on + 1)
            if found is not None:
                on, is_same = found, frame.line == self.position[found]
                left = Leaving((*self.position[:on], frame.line), depth, is_same)
                if not is_same:
                    break
            elif frame.user:
                break
        return left

    def _next(self, frame: KnownFrame, begin: int) -> int | None:
        """The position on the path of a frame's function; none of the user's frames is skipped on the way."""
        for at in range(begin, len(self._frames)):
            if self._frames[at].code == frame.code:
                return at
            if self._frames[at].user:
                break
        return None


def path_to(kind: Literal["backward", "optimizer"], samples: Iterable[Sample], noted: Iterable[Sample] = ()) -> Path:
    """The path to a boundary whose user lines most samples have.

    It has the frames that the hooks noted, else those of the most frequent stack.
    """
    ways: dict[Stack, Counter[Stack]] = {}
    for sample in samples:
        if sample.phase == kind:
            callers = sample.node.before(kind)
            ways.setdefault(to_user(callers), Counter())[callers] += sample.count
    user, most = max(ways.items(), key=lambda way: way[1].total(), default=((), Counter[Stack]()))
    known = (sample.node.before(kind) for sample in noted if sample.phase == kind)
    return Path(next((way for way in known if to_user(way) == user), max(most, key=most.__getitem__, default=())))


def path_to_model(samples: Sequence[Sample]) -> Path:
    """The path to the model of a loop that does not train.

    A stack that was read while it changed came from other work, so other stacks come through its line: that counts
    against a line, in proportion.
    """
    paths: Counter[Stack] = Counter()
    for sample in samples:
        if sample.phase == "forward":
            paths[to_user(sample.node.before("module", "compile"))] += sample.count
    passed = {path: sum(s.count for s in samples if s.node.frames[: len(path)] == path) for path in paths}
    return Path(max(paths, key=lambda path: paths[path] ** 2 / passed[path], default=()))


class LoopPlace(NamedTuple):
    """The place of a stack in the loop."""

    position: Position  # on the path to backward
    is_before_model: bool | None  # None: no sample has shown the model
    on_line: bool  # at the line that leads to backward
    is_librarys: bool  # a library's code, or its call, leaves the path
    inside: Stack  # what is called there

    @property
    def called(self) -> Function | None:
        """The user's function that it comes to first."""
        return _called(self.inside)


def _called(stack: Stack) -> Function | None:
    return next((frame.code for frame in stack if frame.user), None)


class Loop:
    """Finds the place of a stack in the loop, and the work done there.

    While no backward was sampled, the path leads to the update; in a loop that has neither, to the model. A call that
    fetches and runs the model without a backward is an evaluation if the model runs elsewhere too, or if it comes after
    the update.
    """

    def __init__(self, samples: Sequence[Sample], noted: Sequence[Sample] = (), *, forward_only: bool = False) -> None:
        """``noted``: the hooks' stacks; ``forward_only``: whether markers show steps, none with backward or update."""
        self.path = path_to("backward", samples, noted)
        own = "backward"
        if not self.path.position:
            self.path, own = path_to("optimizer", samples, noted), "optimizer"
        self.is_forward_only = forward_only and not self.path.position
        if self.is_forward_only:
            self.path, own = path_to_model(samples), "forward"
        self.is_known = bool(self.path.position)  # whether a sample has shown which lines train
        #: True if the optimizer calls the forward pass and backward as a closure.
        self.trains_in_optimizer = self.path.passes_optimizer
        self._ends: Collection[str] = {"forward"} if self.is_forward_only else UPDATES
        self._running: set[Position] = set()
        self._model = Path()  # to where the loop comes to the model first
        self._ending = self._endings(samples)
        if self.is_known:
            self._ending.setdefault(self.path.position, own)
        self.last = max(self._ending, default=())
        self._last_backward = max((at for at, kind in self._ending.items() if kind == "backward"), default=())
        self.fetches = self.shows_forward = False
        self._fetching: set[Position] = set()
        self._evaluating: dict[Position, set[Function | None]] = {}  # where, and in which user functions
        self._training: set[Function | None] = set()

    def add(self, samples: Sequence[Sample], has_loader: bool) -> None:
        """Fold the fetches and the model that samples of training show. ``has_loader``: whether markers show one."""
        whole = self._whole(samples)
        if not self.is_forward_only:
            self._note_evaluation(whole)
        training = [(sample, at) for sample, at in whole if at not in self._evaluating]
        self._fetching = {at for sample, at in training if sample.phase == "data"}
        self.fetches = has_loader or bool(self._fetching)
        running = [(sample, at) for sample, at in training if sample.phase == "forward" and at <= self.last]
        self._running = {at for _, at in running}
        self.shows_forward = bool(running)
        for sample, at in sorted(running, key=lambda one: -one[0].count):
            left = self._model.leave(sample.node)
            if at == min(self._running) and (
                left is None or (not left.on_line and left.position < self._model.position)
            ):
                self._model = Path(sample.node.before("module", "compile"))
        self._training = {
            _called(sample.node.frames[left.depth + 1 :])
            for sample, _ in training
            if sample.phase != "rest" and (left := self.path.leave(sample.node))
        }

    def _endings(self, samples: Sequence[Sample]) -> dict[Position, str]:
        """The places that lead to backward or an update, with the one that was sampled first there."""
        endings, ends, others, alike = dict[Position, str](), Counter[Position](), Counter[Position](), Counter[str]()
        for sample in samples:
            left = self.path.leave(sample.node)
            if left is not None and sample.phase in self._ends:
                endings.setdefault(left.position, sample.phase)
                ends[left.position] += sample.count
                alike[sample.phase] += sample.count
            elif left is not None:
                others[left.position] += sample.count
        return {
            at: kind
            for at, kind in endings.items()
            if ends[at] * _OF_PLACE > ends[at] + others[at] and ends[at] * _OF_UPDATES > alike[kind]
        }

    def _whole(self, samples: Sequence[Sample]) -> list[tuple[Sample, Position]]:
        """The samples on the path, without those that were torn, or in a model that is only run."""
        placed = ((sample, self.path.leave(sample.node)) for sample in samples)
        return [
            (sample, left.position)
            for sample, left in placed
            if left is not None and (sample.phase not in self._ends or left.position in self._ending)
        ]

    def _note_evaluation(self, whole: Sequence[tuple[Sample, Position]]) -> None:
        fetching, running, training = (
            {at for sample, at in whole if sample.phase in phases} for phases in ({"data"}, {"forward"}, UPDATES)
        )
        both = (fetching & running) - training
        if all(at > self.last for at in running - both):
            both = {at for at in both if at > self.last}
        for sample, at in whole:
            place = self.at(sample.node) if at in both and sample.phase == "forward" else None
            if place is not None and (at > self.last if place.is_librarys else place.called):
                self._evaluating.setdefault(at, set()).add(place.called)

    def at(self, node: StackNode) -> LoopPlace | None:
        """The place of a stack; None off the path."""
        left, to_model = self.path.leave(node), self._model.leave(node)
        if left is None:
            return None
        depth = max(left.depth, to_model.depth if to_model is not None else 0)
        frame, inside = node.frames[depth], node.frames[depth + 1 :]
        calls = left.on_line and bool(inside) and "library" in inside[0].roles
        is_librarys = "library" in frame.roles or calls
        return LoopPlace(left.position, self._is_before_model(left, to_model), left.on_line, is_librarys, inside)

    def _is_before_model(self, left: Leaving, to_model: Leaving | None) -> bool | None:
        if not self._running:
            return None
        *outer, line = left.position
        beside = [at[-1] for at in self._running if [*at[:-1]] == outer]
        if beside and line != min(beside):
            return line < min(beside)
        if not beside:
            return self.path.is_before(left, min(self._running))
        return to_model is not None and not to_model.on_line and to_model.position < self._model.position

    def is_after(self, place: LoopPlace | None) -> bool:
        """True if the loop comes there after backward and the update."""
        return place is not None and place.position > self.last

    def is_after_backward(self, place: LoopPlace | None) -> bool:
        """True if the loop comes there after backward."""
        return place is not None and place.position > self._last_backward

    def is_above_backward(self, place: LoopPlace | None) -> bool:
        """True if the loop comes there before the line that leads to backward."""
        return place is not None and not place.on_line and place.position < self.path.position

    def is_evaluation(self, sample: Sample, place: LoopPlace | None) -> bool:
        """True if a sample fetches or runs the model to evaluate, or is in a function of the user's that does."""
        if place is None or sample.phase in UPDATES or place.position not in self._evaluating:
            return False
        return sample.phase != "rest" or place.called in self._evaluating[place.position]

    def is_on_fetch_line(self, place: LoopPlace) -> bool:
        """True if a sample is on a line of the user's that fetches, outside the fetch.

        There the old batch is freed as the new one replaces it: by the markers, the forward pass has begun.
        """
        return place.called is None and not place.is_librarys and place.position in self._fetching

    def trains(self, function: Function | None) -> bool:
        """True if a function of the user's runs the model, fetches or calls backward."""
        return function in self._training

    def counted_as(self, place: LoopPlace | None) -> str | None:
        """The phase in which markers count a stretch outside all of their boundaries; None: they leave it open.

        Time between backward and an update counts as "other". In a loop that fetches its batches, so does time between
        its last update and the fetch; from the fetch to the first backward it is the forward pass. Markers leave open
        the time before backward in a loop that does not fetch, and time between two models' updates.
        """
        if place is None or self.is_forward_only:
            return None
        *outer, line = place.position
        depth = len(outer)
        beside = {at[depth]: kind for at, kind in self._ending.items() if [*at[:depth]] == outer and len(at) > depth}
        before = max((at for at in beside if at < line), default=None)
        after = min((at for at in beside if at > line), default=None)
        if before is not None and after is not None:
            return "other" if (beside[before], beside[after]) == ("backward", "optimizer") else None
        if not self.fetches or before == after:
            return None
        is_forward = before is None and place.position > min(self._fetching, default=())
        return "forward" if is_forward else "other"


class Seen(NamedTuple):
    """The facts about a loop that come from outside the samples of a span.

    A pass that takes a thousandth of a step is in few samples, and many spans have none of it, although the lines of
    the loop never change. Until a sample has shown backward, or an update, the stack that the hooks recorded counts.
    """

    noted: Sequence[Sample] = ()  # by the hooks
    passes: Callable[[], Mapping[StackNode, int]] = dict  # stacks of the run in its forward pass, or in backward

    @classmethod
    def of(cls, stacks: Sequence[LoopStack], trie: Trie, passes: Callable[[], Mapping[StackNode, int]] = dict) -> Seen:
        """These facts, with the stacks that the hooks recorded."""
        return cls([Sample(trie.node(stack.frames), 1, stack.boundary) for stack in stacks], passes)

    def beside(self, samples: Sequence[Sample]) -> list[Sample]:
        """The stacks of the run in its forward pass, and in backward, if none of these samples shows that."""
        missing = {"forward", "backward"} - {sample.phase for sample in samples}
        passes = self.passes() if missing else {}
        return [Sample(node, n, node.boundary) for node, n in passes.items() if node.boundary in missing]

    def calling_backward(self) -> set[Function]:
        """The user's functions that call backward or the update, as file and name."""
        nodes = (
            *(node for node in self.passes() if node.boundary == "backward"),
            *(noted.node for noted in self.noted),
        )
        callers = (to_user(node.before("backward", "optimizer")) for node in nodes)
        return {caller[-1].code for caller in callers if caller}


#: For a loop without other known facts.
NOTHING_SEEN = Seen()
