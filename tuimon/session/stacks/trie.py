"""The stacks of all threads as a trie of frames: a node is a stack, and knows what its frames show.

A frame has a role in a training loop: it is a boundary of it, or code with some role that its names show.

Records name a stack by the ids of its frames, root first. Its node is made below its caller's when it first comes, and
goes with the last window that counts it. The properties of a node (boundary, activity, owner of its code) are worked
out once, on first use, for all windows, threads and processes in which it is sampled::

    >>> from tuimon.records import Frame
    >>> trie = Trie()
    >>> torch = "/v/lib/python3.11/site-packages/torch"
    >>> main = Frame("train.py", 44, "main", "loss = model(x)", True)
    >>> trie.add_frames(0, [main, Frame(f"{torch}/nn/modules/module.py", 1, "_call_impl")])
    >>> model = trie.node([0, 1])
    >>> model is trie.node([0, 1]), model.parent is trie.node([0])
    (True, True)
    >>> model.boundary, model.activity, model.place.line, model.has("module")
    ('forward', 'torch', 44, True)

A window counts nodes, a process knows its loop and places the nodes of a span in phases
(``process.py``, ``loop.py``), and ``Samples`` answers for them (``samples.py``)::

    >>> from tuimon.session.stacks.samples import Sample, Samples
    >>> found = Samples((Sample(model, 30, "forward"), Sample(trie.node([0]), 10, "data")))
    >>> found.share(below="module"), found.share(doing="torch", phase="data"), found.hottest(phase="forward").samples
    (0.75, 0.0, 30)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from typing import Literal, get_args
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import astuple

from tuimon import library_code, torch_code
from tuimon.bounds import FRAMES_HELD, MANY_HELD
from tuimon.code_origin import function_at, innermost_work, is_import_system, is_library_file, package_of
from tuimon.records import Frame, Kept, Place, Setting, Stacks
from tuimon.session.stacks.activity import Activity, Work, activity_of
from tuimon.text import without_comment

#: ``rest``: outside all marked boundaries and modules; there the loop's own lines decide (see ``loop``).
StackPhase = Literal["data", "forward", "backward", "optimizer", "rest"]
FrameKind = Literal["fetch", "backward", "optimizer", "module", "compile", "import", "none"]
#: A function's file and its bare name.
Function = tuple[str, str]
#: A block of code without gradients: its file, first line and function; the line is 0 in a library that evaluates.
Block = tuple[str, int, str]
Role = Literal[
    "callback",
    "calls_closure",
    "collates",
    "collector",
    "compiled_call",
    "environment",
    "generates",
    "graph_replay",
    "library",
    "may_be_loss",
    "messages",
    "metric",
    "optimizer_code",
    "recurrent",
    "returns_gradients",
    "saves",
    "scaler",
    "upkeep",
]

#: Roles by the names that libraries and torch give their files and functions.
_NAMED: tuple[tuple[Role, Callable[[str, str], bool]], ...] = (
    ("callback", library_code.is_callback),
    ("calls_closure", torch_code.may_call_closure),
    ("collector", library_code.is_collector),  # makes data with a policy
    ("compiled_call", torch_code.is_compiled_call),
    ("environment", library_code.is_environment),
    ("generates", library_code.is_generation),  # text, with a language model; see also ``KnownFrame.of``
    ("graph_replay", torch_code.is_graph_replay),
    ("library", lambda file, name: is_library_file(file) and not library_code.is_rollout_entry(file, name)),  # no torch
    ("may_be_loss", library_code.may_be_loss),
    ("messages", library_code.handles_messages),
    ("metric", lambda file, function: library_code.is_metric(file) or library_code.is_logging(file, function)),
    ("optimizer_code", torch_code.is_torch_optimizer),
    ("recurrent", torch_code.is_recurrent_layer),
    ("returns_gradients", torch_code.is_gradient_call),
    ("saves", torch_code.saves_checkpoint),
    ("scaler", torch_code.is_grad_scaler),
    ("upkeep", torch_code.is_model_upkeep),
)


@lru_cache(MANY_HELD)
def _named(file: str, function: str) -> frozenset[Role]:
    found: set[Role] = {role for role, has_it in _NAMED if has_it(file, function)}
    is_named_part = torch_code.marked_part(file)  # of torch, by the views
    return frozenset(found - {"library"} if is_named_part else found)


#: Boundaries of the training loop, and imports, by the files and functions of torch, of our hooks and of Python.
_KINDS: tuple[tuple[FrameKind, Callable[[str, str], bool]], ...] = (
    ("compile", torch_code.compiles),
    ("import", is_import_system),
    ("fetch", torch_code.is_fetch),
    ("backward", torch_code.is_backward_entry),
    ("optimizer", torch_code.is_optimizer_step),
    ("module", torch_code.is_module_run),
)


class KnownFrame(Frame, frozen=True, gc=False, eq=False, kw_only=True):
    """A frame, and its role in a training loop; there is one object for each id, so equal frames are identical."""

    code: Function
    text: str = ""  # its line without the comment at the end
    kind: FrameKind = "none"
    roles: frozenset[Role] = frozenset()
    block: Block | None = None

    @classmethod
    def of(cls, frame: Frame) -> KnownFrame:
        """The facts known of a frame, by its names, the owner of its code, and the text of its line."""
        file, function = code = frame.file, frame.function
        roles, block, text = _named(file, function), None, without_comment(frame.source)
        if frame.user:  # of a program that is an installed package as well
            roles = roles - {"library"} | ({"generates"} if function == "generate" else set())
        if torch_code.collates(file, function, text):
            roles |= {"collates"}
        if frame.no_grad is not None or (not frame.user and library_code.is_evaluator(file, function)):
            block = file, frame.no_grad[0] if frame.no_grad is not None else 0, function
        kind: FrameKind = next((kind for kind, is_one in _KINDS if is_one(file, function)), "none")
        if not frame.user and torch_code.is_module_body(file, function):
            kind = "import"
        return cls(*astuple(frame), code=code, text=text, kind=kind, roles=roles, block=block)


#: A frame without known facts.
UNKNOWN_FRAME = KnownFrame("", 0, "?", code=("", "?"))

#: Most lines held that set numbers of threads or workers, and most that keep something each step.
_COUNTS_LIMIT, _KEEPING_LIMIT = 16, 4
#: Roles of code that makes data for updates.
_MAKES_DATA: tuple[Role, ...] = ("collector", "environment", "generates")
#: Frames, root first.
Stack = tuple[KnownFrame, ...]


class Trie:
    """Frames by id, over all processes of a stream, and the nodes of the stacks that are in use; bounded."""

    def __init__(self) -> None:
        #: The lines of code that make each setting.
        self.setting_lines: dict[Setting, list[Place]] = {what: [] for what in get_args(Setting)}
        self.keeping: dict[Kept, list[Place]] = {}  # lines that keep one more thing each step, by its kind
        self.programs: set[str] = set()  # installed packages that form the program: their code counts as the user's
        self._frames: dict[int, KnownFrame] = {}
        self._texts: dict[str, dict[int, str]] = {}  # lines of code by file and number, as far as frames brought them
        self._root = StackNode(0, -1, None, UNKNOWN_FRAME, frozenset(), "rest", self)
        self._made = 0  # nodes, of which the latest has this number
        self._nodes: WeakValueDictionary[tuple[int, int], StackNode] = WeakValueDictionary()  # by caller and frame
        self._stacks: WeakValueDictionary[tuple[int, ...], StackNode] = WeakValueDictionary()  # by ids of all frames

    def add_frames(self, first: int, frames: list[Frame]) -> None:
        """Add frames, with ids from ``first`` on."""
        for number, frame in enumerate(frames, first):
            if len(self._frames) < FRAMES_HELD:
                self._frames[number] = KnownFrame.of(frame)
                if frame.user and (package := package_of(frame.file)) is not None:
                    self.programs.add(package)
                if frame.source:
                    self._texts.setdefault(frame.file, {})[frame.line] = frame.source
                for one in frame.counts:
                    places, place = self.setting_lines[one.what], Place(frame.file, one.line, one.function, one.source)
                    if len(places) < _COUNTS_LIMIT and place not in places:
                        places.append(place)
                for line in frame.keeping:
                    places = self.keeping.setdefault(line.kept, [])
                    if len(places) < _KEEPING_LIMIT:
                        places.append(Place(frame.file, line.line, line.function, line.source))

    def node(self, ids: Sequence[int]) -> StackNode:
        """The stack of frames with these ids, root first."""
        key = tuple(ids)
        found = self._stacks.get(key)
        if found is None:
            found = self._root
            for number in key:
                parent, found = found, self._nodes.get((found.number, number))
                if found is None:
                    frame, roles = self._frames.get(number, UNKNOWN_FRAME), parent.roles
                    own = frame.roles if frame.kind == "none" else frame.roles | {frame.kind}
                    roles = roles if own <= roles else roles | own
                    self._made += 1
                    found = StackNode(self._made, number, parent, frame, roles, _boundary(parent, frame), self)
                    self._nodes[parent.number, number] = found
            self._stacks[key] = found
        return found

    def lines_near(self, file: str, line: int, around: int) -> list[tuple[int, str]]:
        """The lines of code from ``around`` before to ``around`` after one that samples have brought, numbered."""
        texts = self._texts.get(file, {})
        return [(n, texts[n]) for n in range(line - around, line + around + 1) if n in texts]


class StackNode(Struct, frozen=True, eq=False, dict=True, weakref=True):
    """A stack: its innermost frame, below the node of its caller. The root stands for a stack without frames."""

    number: int
    frame_id: int
    parent: StackNode | None
    frame: KnownFrame  # the innermost
    roles: frozenset[Role | FrameKind]  # of all of its frames
    boundary: StackPhase  # the innermost that it is in
    trie: Trie

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The ids of its frames, root first."""
        return tuple(node.frame_id for node in reversed([*self._up()]))

    @cached_property
    def frames(self) -> Stack:
        """Its frames, root first."""
        return tuple(node.frame for node in reversed([*self._up()]))

    def _up(self) -> Iterator[StackNode]:
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    @cached_property
    def kinds(self) -> list[FrameKind]:
        """The kind of each frame, which shows the phase."""
        return [frame.kind for frame in self.frames]

    def has(self, role: Role | FrameKind) -> bool:
        """True if one of its frames has this role, or is of this kind."""
        return role in self.roles

    @cached_property
    def import_depth(self) -> int:
        """The depth of its outermost import; 0 if there is none, as the root frame is the program itself."""
        return self.kinds.index("import", 1) if self.has("import") and "import" in self.kinds[1:] else 0

    def before(self, *kinds: FrameKind) -> Stack:
        """The frames from the root down to the first one of these kinds, which is left out; all if there is none."""
        if self.roles.isdisjoint(kinds):
            return self.frames
        return self.frames[: next(depth for depth, kind in enumerate(self.kinds) if kind in kinds)]

    @cached_property
    def outside_torch(self) -> Stack:
        """The frames from the root to the first boundary or module."""
        return self.before("fetch", "backward", "optimizer", "module")

    # ---- the owner of its code

    @cached_property
    def user_line(self) -> KnownFrame | None:
        """The innermost frame of the user's code."""
        return next((frame for frame in reversed(self.frames) if frame.user), None)

    @cached_property
    def place(self) -> Place | None:
        """The innermost user line; None if a forked DataLoader worker has none of its own."""
        return user_place(self.frames)

    @property
    def function(self) -> Function | None:
        """The user's innermost function, by file and name."""
        return self.place.code if self.place is not None else None

    @property
    def root(self) -> Function | None:
        """The outermost function, by file and name."""
        return self.frames[0].code if self.frames else None

    @cached_property
    def functions(self) -> frozenset[Function]:
        """The user's functions that it passes through, by file and name."""
        return frozenset(frame.code for frame in self.frames if frame.user)

    def calls(self, function_part: str) -> bool:
        """True if a function whose name contains this is in the stack."""
        return any(function_part in frame.function for frame in self.frames)

    @property
    def hook(self) -> tuple[KnownFrame, Place | None] | None:
        """The user's function that autograd calls as a hook, outside an update, with the line that registers it.

        One that takes gradients itself is the model's own: it solves for the gradient of a fixed point.
        """
        for depth, (caller, frame) in enumerate(pairwise(self.frames), 2):
            if not frame.user or "optimizer" in self.roles or "backward" in self.kinds[depth:]:
                continue
            lines = (at for at in self.trie.setting_lines["hook"] if torch_code.is_hook_of(at.source, frame.function))
            registered = next(lines, None)
            if registered is not None or caller.kind == "backward":
                return frame, registered
        return None

    # ---- its work

    @cached_property
    def activity(self) -> Activity:
        return activity_of(self.frames)

    @cached_property
    def returns_gradients(self) -> bool:
        """True if the backward pass that it is in returns gradients, and accumulates none."""
        return next(("returns_gradients" in frame.roles for frame in self.frames if frame.kind == "backward"), False)

    @cached_property
    def closure(self) -> Stack:
        """The frames of the closure that one of torch's optimizers calls; empty if it calls none here."""
        own = next((i for i in range(len(self.frames) - 1, -1, -1) if "optimizer_code" in self.frames[i].roles), None)
        return self.frames[own + 1 :] if own is not None and "calls_closure" in self.frames[own].roles else ()

    @property
    def is_in_closure(self) -> bool:
        """True if one of torch's optimizers calls a closure here that is not torch's own."""
        return any(frame.user or "library" in frame.roles for frame in self.closure)

    @cached_property
    def maker_depth(self) -> int | None:
        """The index of the outermost frame that steps an environment or generates, if any does."""
        for depth, frame in enumerate(self.frames):
            makes = not frame.roles.isdisjoint(_MAKES_DATA)
            if makes or (depth and is_environment_step(self.frames[depth - 1], frame)):
                return depth
        return None

    @property
    def makes_data(self) -> bool:
        """True if an environment is stepped in this stack, or a model generates."""
        return self.maker_depth is not None

    @property
    def computes_metric(self) -> bool:
        """True if it is in a library's metric on which nobody trains, or logs one."""
        return self.has("metric") and not self.has("may_be_loss")

    @cached_property
    def work(self) -> Work:
        """Its work that markers do not show, such as a checkpoint; ``none`` if markers show it."""
        if self.has("saves") and self.boundary == "rest" and self.hook is None:
            return "checkpoint"
        if self.activity == "prompt":
            return "prompt"
        if self.has("compile"):
            return "compile"
        if self.import_depth:  # compilers are imported at their first use
            is_for_compiler = any(torch_code.is_compiler(frame.file) for frame in self.frames[: self.import_depth])
            return "compile" if is_for_compiler else "import"
        if self.activity == "compile":  # in another process
            return "compile"
        if self.boundary == "data":
            return "first batch"
        if self.activity == "network":
            return "network"
        return "program" if self.activity == "child" else "none"

    @cached_property
    def called(self) -> Stack:
        """The frames below the user's innermost line, the innermost first."""
        return tuple(takewhile(lambda frame: not frame.user, reversed(self.frames)))

    @cached_property
    def is_upkeep(self) -> bool:
        """True if it is in torch's code for upkeep of a model, outside a fetch."""
        return self.user_line is not None and not self.has("fetch") and any("upkeep" in f.roles for f in self.called)

    @cached_property
    def is_in_optimizer(self) -> bool:
        """True if the user's code is in a library's own optimizer."""
        file = next((frame.file for frame in self.called if "library" in frame.roles), "")
        return library_code.is_optimizer_module(file)


class Window(Struct, frozen=True):
    """How often each thread was sampled in each stack."""

    begin_s: float
    t: float  # its end
    counts: dict[int, dict[StackNode, int]]  # by thread

    @classmethod
    def of(cls, record: Stacks, trie: Trie) -> Window:
        counts: dict[int, dict[StackNode, int]] = {}
        for stack in record.stacks:
            own, node = counts.setdefault(stack.tid, {}), trie.node(stack.frames)
            own[node] = own.get(node, 0) + stack.count
        return cls(record.t - record.window_s, record.t, counts)


def _boundary(caller: StackNode, frame: KnownFrame) -> StackPhase:
    """The innermost boundary that a frame is in, as for markers; ``rest``: in none.

    A module run by a checkpoint inside backward is backward, one run by a closure inside an optimizer's step is
    forward. A model that is compiled calls no module yet: that is forward, too, but a step that is compiled is the
    optimizer's. Code that an import runs is in none of them.
    """
    outer = caller.boundary
    match frame.kind:
        case "fetch":
            return "data"
        case "backward":
            return "backward"
        case "import":
            return "rest"
        case "optimizer":
            return outer if caller.frame.kind == "import" else "optimizer"
        case "module" | "compile" if outer == "rest" and not caller.has("import"):
            return "forward"
        case "module" if outer == "optimizer":
            return "forward"
    return outer


def is_environment_step(caller: KnownFrame, frame: KnownFrame) -> bool:
    """True if a user's ``step`` is an environment's, as the line that calls it shows."""
    return frame.function == "step" and library_code.steps_environment(caller.text)


def down_to_user(stack: Stack) -> Stack:
    """The frames from the root to the innermost user frame."""
    return stack[: next((depth for depth in range(len(stack), 0, -1) if stack[depth - 1].user), 0)]


def user_place(frames: Sequence[Frame]) -> Place | None:
    """The innermost user line of a stack (root first); None if it holds none.

    A forked DataLoader worker carries the trainer's frames below its loop, which are not its own work.
    """
    for depth in range(len(frames) - 1, -1, -1):
        frame = frames[depth]
        if frame.user:
            return Place(frame.file, frame.line, function_at(frames[: depth + 1]), frame.source)
        if torch_code.is_worker_loop(frame.file, frame.function):
            return None
    return None


def place_of(frames: Sequence[Frame]) -> Place | None:
    """The innermost user line; else the innermost line of a package, torch last; else the innermost of all lines."""
    own = user_place(frames)
    if own is not None or not frames:
        return own
    frame = innermost_work(frames)
    return Place(frame.file, frame.line, frame.function, frame.source)
