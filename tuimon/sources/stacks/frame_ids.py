"""Frames of a stream by id: each distinct place in code is listed once, with its source text if it is the user's.

Four lines of libraries have text: one that collects garbage or waits for a message, as C code makes no frame;
torch's that has a batch made of items, as what it calls may have any name; and one that steps an environment of the
user's, as ``step`` may be the name of anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuimon.bounds import Latest
from tuimon.code_origin import is_import_system, is_library_file, is_user_file, package_of
from tuimon.library_code import is_callback, is_evaluator, is_metric, is_rollout_entry, may_be_loss, steps_environment
from tuimon.proc.ring_facts import RawFrame
from tuimon.records import Frame
from tuimon.sources.source_facts import NO_FACTS, ProcessCode, SourceFacts
from tuimon.sources.source_text import SourceText
from tuimon.torch_code import collects_garbage, compiles, is_call_wrapper, is_module_body, marked_part, telling_lines


class FrameTraits(NamedTuple):
    """The properties of a frame that decide whether a shortened stack keeps it."""

    user: bool
    # the part of torch, our hooks, or a library's rollout, evaluation or metric, that shows the phase; "" for the rest
    part: str
    wrapper: bool  # True if it only passes a call on
    library: bool  # of an installed package other than torch
    imports: bool  # Python's import system, or a library's module while that is imported


class FrameIds:
    """Ids for the frames of a stream, from 0 on; once ``limit`` are given out, one last id stands for all others."""

    def __init__(self, limit: int = 20_000) -> None:
        self._ids: dict[tuple[RawFrame, bool], int] = {}  # by frame, and whether it calls a user's ``step``
        self._given = 0  # ids so far
        self._programs: frozenset[str] = frozenset()
        self._traits = Latest[tuple[str, str], FrameTraits](limit)  # by file and function
        self.facts = SourceFacts()
        self._reported: set[str] = set()  # files whose settings and keeping lines are reported
        self._library_source = SourceText(files_held=1)  # of each library a few lines are read, most of them once
        self._limit = limit
        self._new: list[Frame] = []
        self._rest_id: int | None = None

    def set_programs(self, packages: frozenset[str]) -> None:
        """These installed packages are the program that runs: from now on their code, and no other's, is the user's."""
        changed = packages ^ self._programs
        if not changed:
            return
        self._programs = packages
        self._traits.clear()
        self._ids = {key: id_ for key, id_ in self._ids.items() if package_of(key[0].file) not in changed}

    def traits(self, frame: RawFrame) -> FrameTraits:
        """The properties of a frame that decide whether a shortened stack keeps it."""
        file, function = code = frame.code
        traits = self._traits.get(code)
        if traits is None:
            user = is_user_file(file, self._programs)
            part = marked_part(file) or ("metric or loss" if may_be_loss(file) else "metric" if is_metric(file) else "")
            library = not part and not user and is_library_file(file)
            if is_rollout_entry(file, function):
                part = "rollout"
            elif compiles(file, function):
                part = "compiler"
            elif is_evaluator(file, function) and not user:
                part = "evaluation"
            elif is_callback(file, function):
                part = "callback"
            elif not part and telling_lines(file) is not None:
                part = "telling"
            imports = is_import_system(file) or (not user and is_module_body(file, function))
            traits = self._traits[code] = FrameTraits(user, part, is_call_wrapper(file, function), library, imports)
        return traits

    def ids_of(self, stack: Sequence[RawFrame], code: ProcessCode) -> list[int]:
        """The ids of a stack's frames, root first.

        A library's line that calls ``step`` has one id with its text if it steps a user's environment, and one
        without elsewhere.
        """
        ids = []
        for frame, called in zip(stack, (*stack[1:], None), strict=True):
            steps = called is not None and called.function == "step" and self.traits(called).user
            steps = steps and self.traits(frame).library
            ids.append(self.id_of(frame, code, is_leaf=called is None, steps=steps))
        return ids

    def id_of(self, frame: RawFrame, code: ProcessCode, *, is_leaf: bool = False, steps: bool = False) -> int:
        """The id of a frame; ``pop_new_frames`` lists a new one next time, with its line of ``code``.

        ``is_leaf``: it is the innermost of its stack. ``steps``: it is a library's, and calls a user's ``step``.
        """
        known = self._ids.get((frame, steps))
        if known is not None:
            return known
        if self._given >= self._limit:
            if self._rest_id is None:
                self._rest_id = self._given
                self._new.append(Frame("", 0, "(more frames)"))
            return self._rest_id
        if steps:
            source = self._library_source.line(frame.file, frame.line, code.files)
            id_ = self._list(frame, code, source) if steps_environment(source) else self.id_of(frame, code)
        else:
            id_ = self._list(frame, code, self._text_of(frame, self.traits(frame), code, is_leaf))
        self._ids[frame, steps] = id_
        return id_

    def _list(self, frame: RawFrame, code: ProcessCode, source: str) -> int:
        traits = self.traits(frame)
        id_ = self._given
        self._given += 1
        file, line, function = code.named(frame)
        facts = code.facts(frame.file) if traits.user and source else NO_FACTS
        of_file = NO_FACTS if frame.file in self._reported else facts
        if of_file is not NO_FACTS:
            self._reported.add(frame.file)
        no_grad, loops = facts.without_gradients(frame.line), facts.loops(frame.line)
        own = (file, line, function, source, traits.user)
        facts_of = (of_file.counts, loops > 0, of_file.keeping, frame.line in facts.polling, loops)
        self._new.append(Frame(*own, "", "", no_grad, None, *facts_of, skips=frame.line in facts.skipping))
        return id_

    def _text_of(self, frame: RawFrame, traits: FrameTraits, code: ProcessCode, is_leaf: bool) -> str:
        if traits.user:
            return code.line(frame)
        telling = telling_lines(frame.file)
        is_read = telling is not None or (is_leaf and traits.library)
        source = self._library_source.line(frame.file, frame.line, code.files) if is_read else ""
        is_kept = collects_garbage(source) or (telling is not None and telling.search(source) is not None)
        return source if is_kept else ""

    def pop_new_frames(self) -> tuple[int, list[Frame]]:
        """The frames that got an id since the last call, and the id of the first of them."""
        new, self._new = self._new, []
        total = self._given + (self._rest_id is not None)
        return total - len(new), new
