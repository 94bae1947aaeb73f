"""What hooks say of a loop: once, with the samples of its process, and again when it changes."""

from __future__ import annotations

import os
from collections import Counter

from tuimon.proc.loop_stacks import LoopStack
from tuimon.proc.ring_facts import RingFacts
from tuimon.proc.target_files import TargetFiles
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.frames.frame_ids import FrameIds, RawFrame
from tuimon.sources.stacks.loop_reports import LoopReports

PID = os.getpid()
TORCH = "/v/lib/python3.11/site-packages/torch"
LOOP = LoopStack(
    "backward",
    (
        ("/me/train.py", 9, "<module>"),
        ("/v/lib/python3.11/site-packages/nice/trainer.py", 70, "fit"),
        ("/v/lib/python3.11/site-packages/nice/trainer.py", 90, "_run"),
        ("/me/train.py", 4, "training_step"),
        (f"{TORCH}/_tensor.py", 630, "backward"),
    ),
)


def test_a_loop_is_reported_once_and_again_when_it_changes() -> None:
    table, ids, files = ProcessTable(PID, None), FrameIds(), TargetFiles(PID, None)
    reports = LoopReports(table, ids)
    key = (PID, 1)
    assert reports.due(key, files) == []
    table.facts = {PID: RingFacts(loop=(LOOP,))}
    (told,) = reports.due(key, files)
    _, frames = ids.pop_new_frames()
    shown = [(frames[number].line, frames[number].function) for number in told.frames]
    assert shown == [(9, "<module>"), (70, "fit"), (90, "_run"), (4, "training_step"), (630, "backward")]
    assert reports.due(key, files) == []
    table.facts = {PID: RingFacts(loop=(LOOP._replace(boundary="optimizer"),))}
    assert [stack.boundary for stack in reports.due(key, files)] == ["optimizer"]
    reports.forget_others([])
    assert reports.due(key, files)


TRAINER = "/v/lib/python3.11/site-packages/nice/trainer.py"
PATH = ((TRAINER, "fit"), (TRAINER, "_run"))


def test_the_functions_of_libraries_that_lead_to_backward_are_known_from_hooks() -> None:
    table, key = ProcessTable(PID, None), (PID, 1)
    reports = LoopReports(table, FrameIds())
    assert reports.path_of(key, Counter()) == ()
    table.facts = {PID: RingFacts(loop=(LOOP,))}
    assert reports.path_of(key, Counter()) == PATH
    tuned = (*LOOP.frames[:1], (TRAINER, 20, "tune"), *LOOP.frames[3:])
    table.facts = {PID: RingFacts(loop=(LOOP._replace(frames=tuned),))}
    assert reports.path_of(key, Counter()) == ((TRAINER, "tune"),)
    reports.forget_others([])
    table.facts = {}
    assert reports.path_of(key, Counter()) == ()


def test_without_hooks_the_most_frequent_sample_in_backward_shows_the_loop() -> None:
    ids, files, key = FrameIds(), TargetFiles(PID, None), (PID, 1)
    reports = LoopReports(ProcessTable(PID, None), ids)
    inside = tuple(RawFrame(*frame) for frame in LOOP.frames)
    assert reports.path_of(key, Counter({inside[:3]: 90})) == ()
    assert reports.due(key, files) == []
    assert reports.path_of(key, Counter({inside[:3]: 90, inside: 5, inside[:1] + inside[3:]: 4})) == PATH
    (told,) = reports.due(key, files)
    assert (told.boundary, len(told.frames)) == ("backward", 5)
    assert reports.due(key, files) == []
