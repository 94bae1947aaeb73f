"""The command line of the memory reader."""

import json
import os
from contextlib import nullcontext
from types import SimpleNamespace

from tuimon.agent.interpreter import command
from tuimon.agent.interpreter.thread_stacks import ThreadStack


def test_a_dump_of_a_stack_that_changed_too_fast_is_taken_again(capsys):
    code = SimpleNamespace(name="crunch", file="train.py", line=lambda unit: 7)
    torn = [ThreadStack(1, os.getpid(), None)]
    dumps = iter([torn, torn, [ThreadStack(1, os.getpid(), [(code, 0)])]])
    stacks = SimpleNamespace(sample=lambda: next(dumps))
    command._print_dump(SimpleNamespace(memory=nullcontext(), stacks=stacks, pid=os.getpid()))
    (thread,) = json.loads(capsys.readouterr().out)
    assert thread["frames"] == [{"name": "crunch", "filename": "train.py", "line": 7}]


def test_one_that_never_stands_still_is_shown_without_frames(capsys):
    stacks = SimpleNamespace(sample=lambda: [ThreadStack(1, os.getpid(), None)])
    command._print_dump(SimpleNamespace(memory=nullcontext(), stacks=stacks, pid=os.getpid()))
    (thread,) = json.loads(capsys.readouterr().out)
    assert thread["frames"] == []
