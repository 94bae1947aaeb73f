"""The loop of a training thread, and the phase of each of its samples: by a boundary in the stack, else by its place.

A path is a stack's frames from the root down to a boundary. Another stack follows it as long as its frames are the same
functions at the same lines, and leaves it at a frame with another line, or by a call that is not on it. The lines down
to there are its position; positions order as tuples do, as the loop comes to them. So a user's loop and one that
a library owns are read the same way::

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

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import takewhile
from typing import Literal, NamedTuple

from msgspec.structs import replace

from tuimon.library_code import evaluates_by_name
from tuimon.records import BETWEEN, TRAINING_PHASES
from tuimon.session.stacks.activity import WAITS, Activity
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Block, Function, Stack, StackNode, down_to_user
from tuimon.threshold import LARGE, MOST, NEARLY_ALL

#: Facts about a loop from outside its samples: whether there are hooks; whether markers show fetches from a DataLoader,
#: an optimizer, evaluation, steps that have ended, a backward or an update in any of them.
Fact = Literal["markers", "loader", "optimizer", "evaluation", "steps", "training"]
#: How many of the samples at a place must be in a boundary before the place counts as leading to it; our choice, as
#: py-spy reads a running process, and a stack may be made of two successive ones. A place that holds most of a
#: boundary's samples always counts.
#: In an update: more than 1 in 9 of the place's samples, and more than 1 in 64 of all samples in updates.
#: In another boundary: more than 1 in 9, or more than one and 1 in 64, of the place's or of the boundary's samples,
#: whichever are more.
_ONE_IN_PLACE, _ONE_IN_BOUNDARY = 9, 64
#: If no sample runs a module, the user's lines before the backward call are the forward pass (of a model without
#: modules), once this many samples are outside every boundary; with fewer they may be data as well. A forward pass in
#: modules that takes 2 % of the samples is missed by 150 of them in 5 of 100 cases: 0.98**150.
MIN_REST_SAMPLES = 150
#: A forward pass without modules takes at most this many times its backward pass. Measured on a CPU: 0.3 to 0.7 times
#: in matrix products, a convolution, attention, loops over single numbers and an ODE; 1.6 with torch.distributions.
_FORWARD_TIMES = 4.0
#: Activities that never occur in the forward pass of a model without modules.
_WAITS = WAITS - {"data", "idle", "ranks", "sync"}
#: Activities that bring a batch to the device; before the forward pass they belong to it, and may wait there for the
#: GPU's queue.
_COPIES: frozenset[Activity] = frozenset({"sync", "transfer"})
#: Functions that step an environment, or generate, to measure the model or to show what it does.
_EVALUATES = re.compile(r"(?i)eval|valid|test|demo|sample|print|log")
#: Share of a block's samples that run a module, from which it runs the model: our choice; much of an evaluation may be
#: its batches, or its environment.
_MODEL_SHARE = 0.1

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
        self.frames = [frame for frame in stack if frame.user or "library" in frame.roles]
        self.position: Position = tuple(frame.line for frame in self.frames)
        self.passes_optimizer = any(frame.kind == "optimizer" for frame in stack)
        self._left: dict[StackNode, Leaving | None] = {}

    def leave(self, node: StackNode) -> Leaving | None:
        """The place at which a stack leaves the path; None for one that does not begin with the path's first frames."""
        if node not in self._left:
            self._left[node] = self._leave(node.frames)
        return self._left[node]

    def _leave(self, stack: Stack) -> Leaving | None:
        on, left = 0, None
        for depth, frame in enumerate(stack):
            at = on
            while at < len(self.frames) and self.frames[at].code != frame.code:
                at = len(self.frames) if self.frames[at].user else at + 1  # none of the user's frames is skipped
            if at < len(self.frames):
                left, on = Leaving((*self.position[:at], frame.line), depth, frame.line == self.position[at]), at + 1
                if not left.on_line:
                    break
            elif frame.user:
                break
        return left


class LoopPlace(NamedTuple):
    """The place of a stack in the loop."""

    position: Position  # on the path to backward
    on_line: bool  # at the line that leads to backward
    is_library_code: bool  # a library's code, or its call, leaves the path
    is_before_model: bool | None  # None: no sample has shown the model
    inside: Stack  # the frames called from there

    @property
    def called(self) -> Function | None:
        """The first of the user's functions that are called there; None if none is."""
        return _called(self.inside)


def _called(stack: Stack) -> Function | None:
    return next((frame.code for frame in stack if frame.user), None)


def placed(
    counts: Mapping[StackNode, int],
    facts: Set[Fact] = frozenset(),
    noted: Sequence[Sample] = (),
    passes: Callable[[], Mapping[StackNode, int]] = dict,
) -> tuple[Sample, ...]:
    """The samples of one training thread with their phases.

    ``noted``: stacks in the loop's boundaries, by the hooks; ``passes``: those of the run in its forward pass, or in
    backward. A pass that takes a thousandth of a step is in few samples, and many spans have none of it, although the
    lines of the loop never change. So these count for a boundary that no sample shows.

    Torn stacks are dropped: most stacks begin at the thread's root, and one that does not is kept only if it shows a
    boundary. The others have lost their callers, because py-spy reads a running process, or run at its exit. Stacks
    without the user's code do not show which root is the thread's.
    """
    sampled = [Sample(node, n, node.boundary) for node, n in counts.items()]
    missing = {"forward", "backward"} - {sample.phase for sample in sampled}
    of_run = passes().items() if missing else ()
    shown = [*sampled, *(Sample(node, n, node.boundary) for node, n in of_run if node.boundary in missing)]
    known = {sample.phase for sample in shown}
    shown += [sample for sample in noted if sample.phase not in known]
    loop, roots = Loop(sampled, shown, noted, facts), Counter[Function | None]()
    for sample in [sample for sample in sampled if sample.node.user_line is not None] or sampled:
        roots[sample.node.root] += sample.count
    root, most = next(iter(roots.most_common(1)), (None, 0))
    # where calls are short, 11 % of the stacks changed while they were read
    if roots.total() - most <= LARGE * roots.total():
        sampled = [sample for sample in sampled if sample.phase != "rest" or sample.node.root == root]
    return tuple(map(loop.placed, sampled))


class Loop:
    """The places of a loop's fetches, model, backward and updates, and the phase of a sample among them.

    The path leads to backward; while none was sampled, to the update; in a loop that has neither, to the model.
    """

    def __init__(
        self, sampled: Sequence[Sample], shown: Sequence[Sample], noted: Sequence[Sample], facts: Set[Fact]
    ) -> None:
        """``shown``: the samples, and those that stand for boundaries that none of them shows."""
        makes_steps = "steps" in facts and "training" not in facts  # without backward and update, by markers
        returned = _returned([*shown, *noted])
        shown, noted = (
            [each.in_phase("forward") if each.node in returned else each for each in samples]
            for samples in (shown, noted)
        )
        self._path, own = _path_to("backward", shown, noted), "backward"
        if not self._path.position:
            self._path, own = _path_to("optimizer", shown, noted), "optimizer"
        self._is_forward_only = makes_steps and not self._path.position
        if self._is_forward_only:
            self._path, own = _path_to_model(shown), "forward"
        #: True if the optimizer calls the forward pass and backward as a closure.
        self._trains_in_optimizer = self._path.passes_optimizer
        self._ends: Sequence[str] = ("forward",) if self._is_forward_only else TRAINING_PHASES
        #: The places at which the loop runs the model before that, and the path to the first of them.
        self._running, self._model = set[Position](), Path()
        self._torn = self._torn_places(shown)
        whole = [sample for sample in shown if not self._is_torn(sample)]
        #: The places that lead to backward or an update, with the one that was sampled first there.
        self._ending = dict[Position, str]()
        for sample in whole:
            left = self._path.leave(sample.node)
            if left is not None and sample.phase in self._ends:
                self._ending.setdefault(left.position, sample.phase)
        if self._path.position:
            self._ending.setdefault(self._path.position, own)
        self._last = max(self._ending, default=())
        self._last_backward = max((at for at, kind in self._ending.items() if kind == "backward"), default=())
        #: Functions that make data, and the last of the loop's own lines that do.
        self._rollouts, self._rollouts_end = set[Function](), Position()
        for sample in () if makes_steps else whole:
            self._note_rollout(sample)
        is_known = "evaluation" in facts
        self._blocks = self._evaluation_blocks(each for each in sampled if not (is_known or self._is_torn(each)))
        self._note_model([sample for sample in whole if not self._is_beside(sample)], "loader" in facts)
        has_optimizer = "optimizer" in facts or any(sample.node.has("optimizer") for sample in shown)
        self._updates_itself = not has_optimizer and not self._is_forward_only
        rest = [sample for sample in sampled if sample.phase == "rest"]
        self._few = sum(sample.count for sample in rest) < MIN_REST_SAMPLES
        self._makes_data = False
        if self._path.position and not self._shows_forward:  # 95 % bound of a Poisson count
            backward = sum(sample.count for sample in sampled if sample.phase == "backward")
            above = sum(s.count for s in rest if s.node.activity not in _WAITS and self._is_above(self._at(s.node)))
            self._makes_data = above > _FORWARD_TIMES * (backward + 2.0 * math.sqrt(backward) + 3.0)

    def _torn_places(self, samples: Iterable[Sample]) -> set[tuple[Position, str]]:
        """The places whose few samples in a boundary are torn, with that boundary: a stack before or after was in it.

        Worked example: of 470 samples at ``for x, y in batches():`` one runs a module, and seven do in the line below.
        If that one counted, the loop would run the model from the ``for`` on, and spend no time on data.
        """
        there, inside, alike = Counter[Position](), Counter[tuple[Position, str]](), Counter[str]()
        for sample in samples:
            left = self._path.leave(sample.node)
            if left is not None:
                there[left.position] += sample.count
                inside[left.position, _kind(sample)] += sample.count
                alike[_kind(sample)] += sample.count
        found = set[tuple[Position, str]]()
        for (at, kind), n in inside.items():
            if kind in self._ends:
                is_few = n * _ONE_IN_PLACE <= there[at] or n * _ONE_IN_BOUNDARY <= alike[kind]
            else:  # an evaluation may fetch for a small part of its time
                most = alike[kind] if kind == "data" else max(there[at], alike[kind])
                is_few = max(n * _ONE_IN_PLACE, (n - 1) * _ONE_IN_BOUNDARY) <= most
            if kind != "rest" and is_few and n <= MOST * alike[kind]:
                found.add((at, kind))
        return found

    def _is_torn(self, sample: Sample) -> bool:
        left = self._path.leave(sample.node)
        return left is not None and (left.position, _kind(sample)) in self._torn

    # ---- what makes data, and what evaluates

    def _note_rollout(self, sample: Sample) -> None:
        """Find where data is made.

        The functions that backward and the update are called through are the path of training. A stack that steps an
        environment leaves this path: the function that it calls there is a rollout, with all that it does besides: the
        policy, the buffer, the copies. Here that is ``rollout``::

            44  states, rewards = rollout(env, policy, 16)
            45  loss = cost(policy(states), rewards)
            46  loss.backward()

        If the loop itself steps the environment, its lines up to there are the rollout, if backward comes later. A
        function that computes the loss in a closure of the optimizer, such as ``training_step``, is treated the same
        way. An environment that a model steps in its forward pass is not a rollout.
        """
        stack, making = sample.node.frames, sample.node.maker_depth
        if making is None:
            return
        generates = "generates" in stack[making].roles
        if not self._path.position:  # updates are too short to be sampled: what makes the data is known nevertheless
            self._rollouts |= set() if generates else {stack[making].code}
            return
        place = self._at(sample.node)
        if place is None or len(place.inside) < len(stack) - making:
            return
        called = place.inside[: len(place.inside) - (len(stack) - making)]
        if any(_EVALUATES.search(frame.function) or frame.kind == "module" for frame in called):
            return
        if place.position > self._path.position and (generates or place.is_library_code):
            return  # generated after backward, or played by a library, to show how the model does
        own = next((frame for frame in called if frame.user), None)
        self._rollouts.add((own or stack[making]).code)
        if own is None and self._is_above(place):
            self._rollouts_end = max(place.position, self._rollouts_end)

    def _is_in_rollout(self, node: StackNode, place: LoopPlace | None) -> bool:
        """True if a stack in neither backward nor an update is part of a rollout; callbacks of the rollout are not."""
        if not self._rollouts:
            return False
        if node.makes_data and any("callback" in frame.roles for frame in node.frames[node.maker_depth :]):
            return False
        if any(frame.code in self._rollouts for frame in takewhile(lambda frame: frame.kind != "module", node.frames)):
            return True
        return place is not None and place.position <= self._rollouts_end

    def _evaluation_blocks(self, samples: Iterable[Sample]) -> set[Block]:
        """The blocks that evaluate.

        A block is what ``with torch.no_grad():`` holds, a function that is decorated so, or one of a library that is
        named as evaluation. A teacher and a target network run without gradients too, but before the update. A block
        evaluates if it comes after the update or is named as evaluation, and if it runs modules and trains nothing, as
        in this code::

            70  def evaluate():
            71      with torch.no_grad():
            72          for x, y in batches(held_out):
            73              out = model(x)

        In a program with rollouts only blocks named as evaluation count: others without gradients may choose actions.
        """
        totals, apart, models, training = Counter[Block](), Counter[Block](), Counter[Block](), set[Block]()
        for sample in samples:
            is_after = not self._rollouts and self._is_after(self._at(sample.node))
            for block in {frame.block for frame in sample.node.outside_torch if frame.block is not None}:
                totals[block] += sample.count
                if sample.phase in TRAINING_PHASES:
                    training.add(block)
                elif is_after or evaluates_by_name(block[2]):
                    apart[block] += sample.count
                    models[block] += sample.count if sample.phase == "forward" else 0
        evaluate = (block for block, n in apart.items() if models[block] >= _MODEL_SHARE * n)
        return {block for block in evaluate if apart[block] >= NEARLY_ALL * totals[block]} - training

    def _is_in_block(self, node: StackNode) -> bool:
        """True if a stack in neither backward nor an update is in a block that evaluates."""
        return any(frame.block in self._blocks for frame in node.outside_torch)

    def _is_beside(self, sample: Sample) -> bool:
        """True if a sample is in an evaluation or a rollout's policy, and so does not show the model of a step."""
        in_rollout = sample.phase == "forward" and self._is_in_rollout(sample.node, self._at(sample.node))
        return in_rollout or self._is_in_block(sample.node)

    # ---- the model

    def _note_model(self, samples: Sequence[Sample], has_loader: bool) -> None:
        """Find the fetches and the model, by samples of training that were not torn.

        A call that fetches and runs the model without a backward is an evaluation if the model runs elsewhere too, or
        if it comes after the update. ``has_loader``: whether markers show one.
        """
        lefts = ((sample, self._path.leave(sample.node)) for sample in samples)
        whole = [(sample, left) for sample, left in lefts if left is not None]
        found = defaultdict[str, set[Position]](set)  # by phase
        for sample, left in whole:
            found["updates" if sample.phase in TRAINING_PHASES else sample.phase].add(left.position)
        both = set() if self._is_forward_only else (found["data"] & found["forward"]) - found["updates"]
        if all(at > self._last for at in found["forward"] - both):
            both = {at for at in both if at > self._last}
        #: The places at which the loop evaluates, and the user's functions in which it does.
        self._evaluating = defaultdict[Position, set[Function | None]](set)
        for sample, left in whole:
            place = self._at(sample.node) if left.position in both and sample.phase == "forward" else None
            if place is not None and (place.position > self._last if place.is_library_code else place.called):
                self._evaluating[place.position].add(place.called)
        training = [(sample, left) for sample, left in whole if left.position not in self._evaluating]
        self._fetching = {left.position for sample, left in training if sample.phase == "data"}
        self._fetches = has_loader or bool(self._fetching)
        running = [one for one in training if one[0].phase == "forward" and one[1].position <= self._last]
        self._running = {left.position for _, left in running}
        self._shows_forward = bool(running)
        for sample, left in sorted(running, key=lambda one: -one[0].count):
            at = self._model.leave(sample.node)
            is_earlier = at is None or (not at.on_line and at.position < self._model.position)
            if left.position == min(self._running) and is_earlier:
                self._model = Path(sample.node.before("module", "compile"))
        #: The user functions that run the model, fetch or call backward.
        self._training = {
            _called(sample.node.frames[left.depth + 1 :]) for sample, left in training if sample.phase != "rest"
        }

    # ---- the place of a stack

    def _at(self, node: StackNode) -> LoopPlace | None:
        """The place of a stack; None off the path."""
        left, to_model = self._path.leave(node), self._model.leave(node)
        if left is None:
            return None
        depth = max(left.depth, to_model.depth if to_model is not None else 0)
        frame, inside = node.frames[depth], node.frames[depth + 1 :]
        calls = left.on_line and bool(inside) and "library" in inside[0].roles
        is_before = self._is_before_model(left, to_model) if self._running else None
        return LoopPlace(left.position, left.on_line, "library" in frame.roles or calls, is_before, inside)

    def _is_before_model(self, left: Leaving, to_model: Leaving | None) -> bool:
        *outer, line = left.position
        beside, first = [at[-1] for at in self._running if [*at[:-1]] == outer], min(self._running)
        if beside and line != min(beside):
            return line < min(beside)
        if beside:
            return to_model is not None and not to_model.on_line and to_model.position < self._model.position
        ahead = self._path.frames[len(left.position) : len(first)]  # a user's line that leads there is not before it
        return left.position < first and (not left.on_line or any(frame.user for frame in ahead))

    def _is_after(self, place: LoopPlace | None) -> bool:
        """True if the loop comes there after backward and the update."""
        return place is not None and place.position > self._last

    def _is_after_backward(self, place: LoopPlace | None) -> bool:
        return place is not None and place.position > self._last_backward

    def _is_above(self, place: LoopPlace | None) -> bool:
        """True if the loop comes there before the line that leads to backward."""
        return place is not None and not place.on_line and place.position < self._path.position

    def _phase_by_markers(self, place: LoopPlace | None) -> str | None:
        """The phase in which markers count a stretch outside all of their boundaries; None: they leave it open.

        Time between backward and an update counts as "other". In a loop that fetches its batches, so does time between
        its last update and the fetch; from the fetch to the first backward it is the forward pass. Markers leave open
        the time before backward in a loop that does not fetch, and time between two models' updates.
        """
        if place is None or self._is_forward_only:
            return None
        *outer, line = place.position
        depth = len(outer)
        beside = {at[depth]: kind for at, kind in self._ending.items() if [*at[:depth]] == outer and len(at) > depth}
        before = max((at for at in beside if at < line), default=None)
        after = min((at for at in beside if at > line), default=None)
        if before is not None and beside.get(line) == "backward" and place.position not in self._fetching:
            return None  # a second pass: ``cost(model(x), y).backward()``
        if before is not None and after is not None:
            return "other" if (beside[before], beside[after]) == ("backward", "optimizer") else None
        if not self._fetches or before == after:
            return None
        is_forward = before is None and place.position > min(self._fetching, default=())
        return "forward" if is_forward else "other"

    # ---- the phase of a sample

    def placed(self, sample: Sample) -> Sample:
        """The sample in its phase."""
        node, place = sample.node, self._at(sample.node)
        found = self._placed(sample, place)
        if found.phase == "forward" and node.computes_metric:
            in_closure = self._fetches and node.is_in_closure
            moved_from = "forward" if found.excluded or in_closure else None  # markers count it as forward there
            found = replace(found, phase="other", unsure=False, moved_from=moved_from)
        # a loop without an optimizer changes its parameters itself: after backward, without gradients
        is_update = self._updates_itself and self._is_after_backward(place)
        is_update = is_update and any(frame.no_grad is not None for frame in node.frames)
        if found.phase == "other" and (node.is_in_optimizer or is_update):
            return replace(found, phase="optimizer", moved_from="other")
        return found

    def _placed(self, sample: Sample, place: LoopPlace | None) -> Sample:
        """A sample in its phase: by its boundary; otherwise as work outside the training; otherwise by its place."""
        boundary, node, in_closure = sample.phase, sample.node, sample.node.is_in_closure
        if boundary == "backward" or (boundary == "optimizer" and not in_closure):
            return sample
        counted = self._phase_by_markers(place)
        if boundary != "optimizer" and self._is_in_block(node):  # markers see its fetches
            return sample.in_phase("eval", counted or ("other" if self._fetches else BETWEEN), moved=boundary != "data")
        if (
            boundary != "optimizer"
            and place is not None
            and place.position in self._evaluating
            and (boundary != "rest" or place.called in self._evaluating[place.position])
        ):
            return sample.in_phase("eval")
        if boundary == "optimizer" and self._is_after_backward(place):
            is_own = any(frame.user for frame in node.closure)
            return sample.in_phase("other", "optimizer", moved=True) if is_own else sample
        if self._is_in_rollout(node, place):
            as_forward = boundary != "data" and self._fetches and in_closure  # markers count it as forward there
            return sample.in_phase("data", "forward" if as_forward else None, moved=True)
        if boundary == "data":
            return sample
        if boundary == "forward":
            is_beside = self._shows_forward and self._is_after(place)
            return sample.in_phase("other" if is_beside else "forward", None if self._trains_in_optimizer else counted)
        return self._placed_outside(sample, place, counted)

    def _placed_outside(self, sample: Sample, place: LoopPlace | None, counted: str | None) -> Sample:
        """A sample outside every boundary, or in a closure of an optimizer before its backward, by its place.

        If no forward pass was sampled, code before backward is forward, except for waits, which no model makes, and for
        more samples than a forward pass can have: these make the data. Until a user's line was shown to train, only
        waits are sure: they are outside the model. If an optimizer calls the forward pass and backward, markers count
        the making of a batch as time outside the step.
        """
        activity = sample.node.activity
        is_wait = activity in _WAITS
        if place is None:
            return sample.in_phase("other", unsure=not (is_wait or any(frame.user for frame in self._path.frames)))
        if self._is_after(place) or place.position > self._path.position:
            return sample.in_phase("other", counted)
        calls = place.called is not None and place.called not in self._training
        if place.is_library_code and not self._is_training(place):
            return sample.in_phase("other", counted, moved=calls)
        if place.called is None and not place.is_library_code and place.position in self._fetching:
            return sample.in_phase("forward", "forward")  # the old batch is freed as the new one replaces it
        if place.is_before_model is None:
            is_data = is_wait or (self._makes_data and self._is_above(place))
            return sample.in_phase("data") if is_data else sample.in_phase("forward", unsure=self._few)
        if not place.is_before_model:  # between two closures of an optimizer markers leave it open
            return sample.in_phase("forward", None if self._trains_in_optimizer else counted)
        if sample.node.is_upkeep:
            return sample.in_phase("other", counted)
        if self._trains_in_optimizer and not self._fetches:
            return sample.in_phase("data", "other", moved=True)
        return sample.in_phase("data", counted, moved=(calls or is_wait) and activity not in _COPIES)

    def _is_training(self, place: LoopPlace) -> bool:
        """True if a place belongs to the training, in a loop that a library owns.

        Before the model, that means the user's function that makes the batch, but not a handler of the loop's events,
        which the library calls through a function of its own. From the model to backward, it means the library's own
        code. In a loop that fetches no batches, any function may make them.
        """
        if place.called is None:
            return place.is_before_model is False and self._is_above(place)
        if place.called in self._training or not self._fetches:
            return True
        return bool(place.is_before_model) and place.inside[0].user


def _kind(sample: Sample) -> str:
    """The boundary of a sample, or that it steps an environment."""
    makes_data = sample.phase == "rest" and sample.node.maker_depth is not None
    return "environment" if makes_data else sample.phase


def _returned(samples: Sequence[Sample]) -> set[StackNode]:
    """The passes that only return gradients, and so belong to the forward pass; empty if all do, as these train."""
    passes = {sample.node for sample in samples if sample.phase in TRAINING_PHASES}
    found = {node for node in passes if node.returns_gradients}
    return set() if found == passes else found


def _path_to(kind: Literal["backward", "optimizer"], samples: Iterable[Sample], noted: Iterable[Sample]) -> Path:
    """The path to a boundary: the user lines that most of its samples share.

    It has the frames that the hooks noted, else those of the most frequent stack.
    """
    ways: dict[Stack, Counter[Stack]] = {}
    for sample in samples:
        if sample.phase == kind:
            callers = sample.node.before(kind)
            ways.setdefault(down_to_user(callers), Counter())[callers] += sample.count
    user, most = max(ways.items(), key=lambda way: way[1].total(), default=((), Counter[Stack]()))
    known = (sample.node.before(kind) for sample in noted if sample.phase == kind)
    return Path(next((way for way in known if down_to_user(way) == user), max(most, key=most.__getitem__, default=())))


def _path_to_model(samples: Sequence[Sample]) -> Path:
    """The path to the model of a loop that does not train.

    A torn stack shows the model below a line of other work. So samples that pass through a line without reaching the
    model count against it, in proportion.
    """
    paths: Counter[Stack] = Counter()
    for sample in samples:
        if sample.phase == "forward":
            paths[down_to_user(sample.node.before("module", "compile"))] += sample.count
    passed = {path: sum(s.count for s in samples if s.node.frames[: len(path)] == path) for path in paths}
    return Path(max(paths, key=lambda path: paths[path] ** 2 / passed[path], default=()))
