"""The call tree of stack samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from tuimon.code_origin import is_agent_file
from tuimon.records import Frame, Place
from tuimon.session.stacks.trie import Stack
from tuimon.torch_code import is_module_call, is_worker_loop


class Call(Struct, eq=False):  # eq: a tree is as deep as the program recursed, comparing two would recurse as well
    """A function as it was reached on one path from the root; lines are its detail."""

    file: str
    function: str
    user: bool
    id: int  # the same for the same path in every tree of this process: cursor and folding survive a refresh
    depth: int
    parent: Call | None
    total: int = 0
    own: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    lines: Counter[int] = field(default_factory=Counter)  # samples that passed through each
    sources: dict[int, str] = field(default_factory=dict)
    called_at: Counter[int] = field(default_factory=Counter)  # lines of the caller
    children: dict[tuple[str, str], Call] = field(default_factory=dict)

    def ordered(self) -> list[Call]:
        """The children, the heaviest first; equal ones by name, so that they do not change places."""
        return sorted(self.children.values(), key=lambda node: (-node.total, node.file, node.function))

    def place(self) -> Place:
        """The function at the line that most samples passed through; 0 if none is known."""
        line = max(self.lines, key=lambda line: (self.lines[line], -line), default=0)
        return Place(self.file, line, self.function, self.sources.get(line, ""))

    def call(self) -> Place | None:
        """The caller's line that most samples came by; None below the root."""
        caller = self.parent
        if caller is None or caller.parent is None or not self.called_at:
            return None
        line = max(self.called_at, key=lambda line: (self.called_at[line], -line))
        return Place(caller.file, line, caller.function, caller.sources[line])

    def phase(self) -> str | None:
        """The phase in which at least two thirds of its samples lie; None if they are mixed or have none."""
        name, count = max(self.phases.items(), key=lambda item: item[1], default=("none", 0))
        return name if name != "none" and 3 * count >= 2 * self.total else None

    def path(self) -> list[Call]:
        nodes: list[Call] = []
        node: Call | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def walk(self) -> Iterator[Call]:
        """This node and all below it, parents first, the heaviest child first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.ordered())


class CallTree:
    """Samples merged by function, from the root on; bounded by ``limit`` nodes."""

    def __init__(self, limit: int = 20_000) -> None:
        self.root = Call("", "all", user=False, id=0, depth=0, parent=None)
        self._limit = limit
        self._size = 1

    @property
    def samples(self) -> int:
        """All samples in the tree, the base of shares."""
        return self.root.total

    def share(self, count: int) -> float:
        return count / self.root.total if self.root.total else 0.0

    def __len__(self) -> int:
        return self._size

    def add_stack(self, stack: Sequence[Frame], count: int, phase: str = "none") -> None:
        """Add ``count`` samples of a stack (root first)."""
        node = self.root
        node.total += count
        node.phases[phase] += count
        at = 0  # the line of the caller
        for frame in stack:
            key = frame.file, frame.function
            if key not in node.children:
                if self._size >= self._limit:
                    break
                self._size += 1
                node.children[key] = Call(*key, frame.user, hash((node.id, *key)), node.depth + 1, node)
            node = node.children[key]
            node.total += count
            node.phases[phase] += count
            node.called_at[at] += count
            at = frame.line
            node.lines[at] += count
            node.sources.setdefault(at, frame.source)
        node.own += count

    def hottest_path(self) -> list[Call]:
        """The path from the root that always takes the heaviest child, while that holds a tenth of all samples."""
        path: list[Call] = []
        node = self.root
        while node.children:
            node = max(node.children.values(), key=lambda child: child.total)
            if node.total * 10 < self.root.total:
                break
            path.append(node)
        return path


def program_part(stack: Stack) -> Stack:
    """The part of a stack that the program itself put there.

    It leaves out the frames that a forked DataLoader worker inherited from the trainer (its own begin at its loop), the
    frame that torch puts between a module's call and its ``forward``, and the frames of our hooks. The innermost frame
    that is not one of these hooks always stays.
    """
    ours = next((n for n, frame in enumerate(reversed(stack)) if not is_agent_file(frame.file)), 0)
    stack = stack[: len(stack) - ours]
    depths = range(len(stack) - 1, 0, -1)
    start = next((depth for depth in depths if is_worker_loop(stack[depth].file, stack[depth].function)), 0)
    callers = (f for f in stack[start:-1] if not is_module_call(f.file, f.function) and not is_agent_file(f.file))
    return (*callers, *stack[-1:])
