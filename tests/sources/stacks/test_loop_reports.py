"""What hooks say of a loop: once, with the samples of its process, and again when it changes."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tuimon.proc.loop_stacks import LoopStack
from tuimon.proc.ring_facts import RingFacts
from tuimon.proc.target_files import TargetFiles
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.frames.frame_ids import FrameIds, RawFrame
from tuimon.sources.stacks.loop_reports import LoopReports

PID = os.getpid()
FILES = TargetFiles(PID, None)
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
    table, ids = ProcessTable(PID, None), FrameIds()
    reports = LoopReports(table, ids)
    key = (PID, 1)
    assert reports.due(key, FILES) == []
    table.facts = {PID: RingFacts(loop=(LOOP,))}
    (told,) = reports.due(key, FILES)
    _, frames = ids.pop_new_frames()
    shown = [(frames[number].line, frames[number].function) for number in told.frames]
    assert shown == [(9, "<module>"), (70, "fit"), (90, "_run"), (4, "training_step"), (630, "backward")]
    assert reports.due(key, FILES) == []
    table.facts = {PID: RingFacts(loop=(LOOP._replace(boundary="optimizer"),))}
    assert [stack.boundary for stack in reports.due(key, FILES)] == ["optimizer"]
    reports.forget_others([])
    assert reports.due(key, FILES)


TRAINER = "/v/lib/python3.11/site-packages/nice/trainer.py"
PATH = ((TRAINER, "fit"), (TRAINER, "_run"))


def test_the_functions_of_libraries_that_lead_to_backward_are_known_from_hooks() -> None:
    table, key = ProcessTable(PID, None), (PID, 1)
    reports = LoopReports(table, FrameIds())
    assert reports.path_of(key, Counter(), FILES) == ()
    table.facts = {PID: RingFacts(loop=(LOOP,))}
    assert reports.path_of(key, Counter(), FILES) == PATH
    tuned = (*LOOP.frames[:1], (TRAINER, 20, "tune"), *LOOP.frames[3:])
    table.facts = {PID: RingFacts(loop=(LOOP._replace(frames=tuned),))}
    assert reports.path_of(key, Counter(), FILES) == ((TRAINER, "tune"),)
    reports.forget_others([])
    table.facts = {}
    assert reports.path_of(key, Counter(), FILES) == ()


def test_without_hooks_the_most_frequent_sample_in_backward_shows_the_loop() -> None:
    ids, key = FrameIds(), (PID, 1)
    reports = LoopReports(ProcessTable(PID, None), ids)
    inside = tuple(RawFrame(*frame) for frame in LOOP.frames)
    assert reports.path_of(key, Counter({inside[:3]: 90}), FILES) == ()
    assert reports.due(key, FILES) == []
    assert reports.path_of(key, Counter({inside[:3]: 90, inside: 5, inside[:1] + inside[3:]: 4}), FILES) == PATH
    (told,) = reports.due(key, FILES)
    assert (told.boundary, len(told.frames)) == ("backward", 5)
    assert reports.due(key, FILES) == []


def noted(*frames: tuple[str, int, str]) -> RingFacts:
    return RingFacts(loop=(LoopStack("backward", (*frames, (f"{TORCH}/_tensor.py", 630, "backward"))),))


def counts_as_users(tmp_path: Path, *frames: tuple[str, int, str]) -> list[str]:
    """The functions whose code counts as the user's, given a loop's stack, once its process has been sampled."""
    table, ids = ProcessTable(PID, None), FrameIds()
    raw = [RawFrame(*frame) for frame in frames]
    for frame in raw:  # some have an id before
        ids.id_of(frame, FILES)
    ids.pop_new_frames()
    table.facts = {PID: noted(*frames)}
    LoopReports(table, ids).path_of((PID, 1), Counter(), FILES)
    numbers = [ids.id_of(frame, FILES) for frame in raw]
    first, new = ids.pop_new_frames()
    assert [number for number in numbers if number >= first] == list(range(first, first + len(new)))
    return [frame.function for frame in raw if ids.traits(frame).user]


PACKAGES = "/v/lib/python3.11/site-packages"
NICE = ((f"{PACKAGES}/nice/cli.py", 30, "main"), (f"{PACKAGES}/fits/trainer.py", 70, "fit"),
        (f"{PACKAGES}/nice/task.py", 4, "step"))  # fmt: skip


@pytest.mark.parametrize("line", ["sys.exit(main())", "sys.exit(main.cli())", "raise SystemExit(main())"])
def test_a_package_whose_command_was_run_is_the_program(tmp_path: Path, line: str) -> None:
    command = tmp_path / "bin" / "nice-train"
    command.parent.mkdir()
    command.write_text(f"import sys\nfrom nice.cli import main\n{line}\n")
    decorated = ("/v/lib/python3.11/site-packages/hydra/main.py", 94, "decorated_main")
    users = counts_as_users(tmp_path, (str(command), 3, "<module>"), decorated, *NICE)
    assert users == ["<module>", "main", "step"]


def installed(tmp_path: Path, text: str) -> tuple[str, tuple[tuple[str, int, str], ...]]:
    """A script that came as a command with packages of its environment, and a training in these."""
    command = tmp_path / "bin" / "nice-train"
    command.parent.mkdir()
    command.write_text(text)
    below = tuple((file.replace("/v/", f"{tmp_path}/", 1), line, function) for file, line, function in NICE)
    return str(command), below


def test_what_an_installed_script_calls_to_train_is_the_program(tmp_path: Path) -> None:
    text = "import nice.cli as cli\nif __name__ == '__main__':\n    cli.train()\n"
    command, below = installed(tmp_path, text)
    assert counts_as_users(tmp_path, (command, 3, "<module>"), *below) == ["<module>", "main", "step"]


def test_an_installed_script_may_train_from_a_function_of_its_own(tmp_path: Path) -> None:
    text = "from nice.cli import fit_all\ndef folder():\n    done = fit_all(\n        1)\nfolder()\n"
    command, below = installed(tmp_path, text)
    users = counts_as_users(tmp_path, (command, 5, "<module>"), (command, 3, "folder"), *below)
    assert users == ["<module>", "folder", "main", "step"]


RUNPY = ("<frozen runpy>", 88, "_run_code")
OLD_RUNPY = ("/usr/lib/python3.10/runpy.py", 86, "_run_code")


@pytest.mark.parametrize("runs", [RUNPY, OLD_RUNPY])
def test_what_a_command_runs_as_a_script_is_the_program_and_the_command_none(
    tmp_path: Path, runs: tuple[str, int, str]
) -> None:
    command, below = installed(tmp_path, "from nice.cli import main\nmain()\n")
    recipe = f"{tmp_path}/lib/python3.11/site-packages/recipes/full.py"
    wrapper = (below[0][0].replace("cli.py", "config.py"), 99, "wrapper")
    ran = ((recipe, 800, "<module>"), wrapper, (recipe, 701, "train"))
    assert counts_as_users(tmp_path, (command, 2, "<module>"), below[0], runs, *ran) == [
        "<module>",
        "<module>",
        "train",
    ]


def test_a_script_of_the_users_that_a_command_runs_leaves_no_package_the_program(tmp_path: Path) -> None:
    command, below = installed(tmp_path, "from nice.cli import main\nmain()\n")
    script = tmp_path / "mine.py"
    script.write_text("import fits\nfits.fit()\n")
    users = counts_as_users(tmp_path, (command, 2, "<module>"), below[0], RUNPY, (str(script), 2, "<module>"), below[1])
    assert users == ["<module>", "<module>"]


def test_what_a_script_of_the_users_runs_is_of_its_own_doing(tmp_path: Path) -> None:
    recipe = f"{PACKAGES}/recipes/full.py"
    users = counts_as_users(tmp_path, ("/me/train.py", 9, "<module>"), RUNPY, (recipe, 80, "<module>"), NICE[1])
    assert users == ["<module>"]


@pytest.mark.parametrize("call", ["trainer.fit(net)", "torch.autograd.backward(loss)"])
def test_an_installed_script_that_trains_itself_is_the_program(tmp_path: Path, call: str) -> None:
    command, below = installed(tmp_path, f"import torch\nfrom fits import trainer as module\n{call}\n")
    assert counts_as_users(tmp_path, (command, 3, "<module>"), *below) == ["<module>"]


def test_a_script_of_the_users_that_calls_a_package_is_the_program(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import nice.cli as cli\ncli.train()\n")
    assert counts_as_users(tmp_path, (str(script), 2, "<module>"), *NICE) == ["<module>"]


class Sampled:
    """Processes that were sampled before they train, and whose code counts as the user's."""

    def __init__(self, tmp_path: Path) -> None:
        self.table, self.ids = ProcessTable(PID, None), FrameIds()
        self._reports = LoopReports(self.table, self.ids)
        self.command = str(tmp_path / "nice-train")
        (tmp_path / "nice-train").write_text("import sys\nfrom nice.cli import main\nsys.exit(main())\n")

    def window(self, *frames: tuple[str, int, str], start: int = 1) -> list[str]:
        """The functions of the user's in a window of such samples of the main thread."""
        stack = tuple(RawFrame(*frame) for frame in frames)
        self._reports.path_of((PID, start), Counter({stack: 20}), FILES)
        numbers = [self.ids.id_of(frame, FILES) for frame in stack]
        first, new = self.ids.pop_new_frames()
        assert all(number < first + len(new) for number in numbers)
        return [frame.function for frame in stack if self.ids.traits(frame).user]


def test_what_a_command_prepares_before_it_trains_is_at_its_packages_lines(tmp_path: Path) -> None:
    run = Sampled(tmp_path)
    assert run.window((run.command, 2, "<module>"), NICE[0]) == ["<module>"]  # it imports
    assert run.window((run.command, 3, "<module>"), *NICE) == ["<module>", "main", "step"]
    run.table.facts = {PID: noted(("/me/train.py", 9, "<module>"), *NICE)}
    assert run.window(("/me/train.py", 9, "<module>"), *NICE) == ["<module>"]  # others train


def test_what_an_installed_script_reads_before_it_trains_is_at_its_own_line(tmp_path: Path) -> None:
    command, below = installed(tmp_path, "import nice.cli as cli\ncli.train()\ncli.read('a')\n")
    run = Sampled(tmp_path)
    assert run.window((command, 2, "<module>"), *below) == ["<module>", "main", "step"]
    assert run.window((command, 3, "<module>"), *below) == ["<module>"]


def test_a_launchers_code_is_no_users_where_another_process_runs_the_users(tmp_path: Path) -> None:
    run = Sampled(tmp_path)
    run.window((run.command, 3, "<module>"), *NICE)
    assert run.window(("/me/train.py", 9, "<module>"), *NICE, start=2) == ["<module>"]
    assert run.window((run.command, 3, "<module>"), *NICE) == ["<module>"]


def test_a_package_that_was_run_as_a_module_is_the_program(tmp_path: Path) -> None:
    run = ("<frozen runpy>", 88, "_run_code")
    users = counts_as_users(tmp_path, run, (f"{PACKAGES}/nice/train.py", 9, "<module>"), *NICE)
    assert users == ["<module>", "main", "step"]


@pytest.mark.parametrize(
    "frames",
    [
        (("/me/train.py", 9, "<module>"), *NICE),
        (("/v/bin/fabric", 8, "<module>"), NICE[0], ("/me/train.py", 9, "<module>"), *NICE[1:]),
        ((f"{PACKAGES}/torch/multiprocessing/spawn.py", 90, "_wrap"), *NICE),  # a rank: who has started it is not known
    ],
)
def test_a_package_that_the_user_calls_is_a_library(tmp_path: Path, frames: tuple[tuple[str, int, str], ...]) -> None:
    assert not {"main", "fit", "step"} & set(counts_as_users(tmp_path, *frames))
