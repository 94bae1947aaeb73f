"""What hooks say of a loop: once, with the samples of its process, and again when it changes."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tuimon.proc.ring_facts import RawFrame, ReportedStack, RingFacts
from tuimon.proc.target_files import TargetFiles
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.stacks.frame_ids import FrameIds
from tuimon.sources.stacks.loop_reports import LoopReports

Stack = tuple[tuple[str, int, str], ...]
PID = os.getpid()
CODE = ProcessCode(TargetFiles(PID, None))
TORCH = "/v/lib/python3.11/site-packages/torch"
LOOP = ReportedStack(
    "backward",
    (
        RawFrame("/me/train.py", 9, "<module>"),
        RawFrame("/v/lib/python3.11/site-packages/nice/trainer.py", 70, "fit"),
        RawFrame("/v/lib/python3.11/site-packages/nice/trainer.py", 90, "_run"),
        RawFrame("/me/train.py", 4, "training_step"),
        RawFrame(f"{TORCH}/_tensor.py", 630, "backward"),
    ),
)


def test_a_loop_is_reported_once_and_again_when_it_changes() -> None:
    table, ids = ProcessTable(PID, None), FrameIds()
    reports = LoopReports(table, ids)
    key = (PID, 1)
    assert reports.due(key, CODE) == []
    table.facts = {PID: RingFacts(loop=(LOOP,))}
    (told,) = reports.due(key, CODE)
    _, frames = ids.pop_new_frames()
    shown = [(frames[number].line, frames[number].function) for number in told.frames]
    assert shown == [(9, "<module>"), (70, "fit"), (90, "_run"), (4, "training_step"), (630, "backward")]
    assert reports.due(key, CODE) == []
    table.facts = {PID: RingFacts(loop=(LOOP._replace(boundary="optimizer"),))}
    assert [stack.boundary for stack in reports.due(key, CODE)] == ["optimizer"]
    reports.forget_others([])
    assert reports.due(key, CODE)


def counts_as_users(tmp_path: Path, *frames: tuple[str, int, str]) -> list[str]:
    """The functions whose code counts as the user's, given a loop's stack, once its process has been sampled."""
    table, ids = ProcessTable(PID, None), FrameIds()
    raw = [RawFrame(*frame) for frame in frames]
    for frame in raw:  # some have an id before
        ids.id_of(frame, CODE)
    ids.pop_new_frames()
    loop = ReportedStack("backward", (*raw, RawFrame(f"{TORCH}/_tensor.py", 630, "backward")))
    table.facts = {PID: RingFacts(loop=(loop,))}
    LoopReports(table, ids).path_of((PID, 1), Counter(), CODE)
    numbers = [ids.id_of(frame, CODE) for frame in raw]
    first, new = ids.pop_new_frames()
    assert [number for number in numbers if number >= first] == list(range(first, first + len(new)))
    return [frame.function for frame in raw if ids.traits(frame).user]


PACKAGES = "/v/lib/python3.11/site-packages"
NICE = ((f"{PACKAGES}/nice/cli.py", 30, "main"), (f"{PACKAGES}/fits/trainer.py", 70, "fit"),
        (f"{PACKAGES}/nice/task.py", 4, "step"))  # fmt: skip


def installed(tmp_path: Path, text: str) -> tuple[str, tuple[tuple[str, int, str], ...]]:
    """A script that came as a command with packages of its environment, and a training in these."""
    command = tmp_path / "bin" / "nice-train"
    command.parent.mkdir()
    command.write_text(text)
    below = tuple((file.replace("/v/", f"{tmp_path}/", 1), line, function) for file, line, function in NICE)
    return str(command), below


#: Frames of a training that a command runs which came with its packages: ``COMMAND`` is its file.
RUNPY = ("<frozen runpy>", 88, "_run_code")
OLD_RUNPY = ("/usr/lib/python3.10/runpy.py", 86, "_run_code")
RECIPE = f"{PACKAGES}/recipes/full.py"
RAN = ((RECIPE, 800, "<module>"), (f"{PACKAGES}/nice/config.py", 99, "wrapper"), (RECIPE, 701, "train"))
DECORATED = (f"{PACKAGES}/hydra/main.py", 94, "decorated_main")
MINE = ("/me/train.py", 9, "<module>")
IMPORTED = "import sys\nfrom nice.cli import main\n"
TRAINS = "import nice.cli as cli\nif __name__ == '__main__':\n    cli.train()\n"
FOLDER = "from nice.cli import fit_all\ndef folder():\n    done = fit_all(\n        1)\nfolder()\n"
RUNS = "from nice.cli import main\nmain()\n"
FITS = "import torch\nfrom fits import trainer as module\n"


def at(line: int, function: str = "<module>") -> tuple[str, int, str]:
    return "COMMAND", line, function


@pytest.mark.parametrize(
    ("text", "frames", "users"),
    [
        # a package whose command was run
        *((IMPORTED + line, (at(3), DECORATED, *NICE), "<module> main step")
          for line in ("sys.exit(main())", "sys.exit(main.cli())", "raise SystemExit(main())")),
        (TRAINS, (at(3), *NICE), "<module> main step"),
        (FOLDER, (at(5), at(3, "folder"), *NICE), "<module> folder main step"),
        # what a command runs as a script is the program, and the command is none
        *((RUNS, (at(2), NICE[0], runs, *RAN), "<module> <module> train") for runs in (RUNPY, OLD_RUNPY)),
        (RUNS, (at(2), NICE[0], RUNPY, MINE, NICE[1]), "<module> <module>"),
        # what a script of the user's runs is of its own doing
        ("", (MINE, RUNPY, (RECIPE, 80, "<module>"), NICE[1]), "<module>"),
        # one that trains itself
        *((FITS + call, (at(3), *NICE), "<module>") for call in ("trainer.fit(net)", "torch.autograd.backward(loss)")),
        # a package that was run as a module
        ("", (RUNPY, (f"{PACKAGES}/nice/train.py", 9, "<module>"), *NICE), "<module> main step"),
        # one that the user calls is a library; who has started a rank is not known
        ("", (MINE, *NICE), "<module>"),
        ("", (("/v/bin/fabric", 8, "<module>"), NICE[0], MINE, *NICE[1:]), "<module> <module>"),
        ("", ((f"{PACKAGES}/torch/multiprocessing/spawn.py", 90, "_wrap"), *NICE), ""),
    ],
)  # fmt: skip
def test_whose_code_is_the_program(tmp_path: Path, text: str, frames: Stack, users: str) -> None:
    command, _ = installed(tmp_path, text)
    placed = [
        (file.replace("COMMAND", command).replace("/v/", f"{tmp_path}/", 1), line, function)
        for file, line, function in frames
    ]
    assert " ".join(counts_as_users(tmp_path, *placed)) == users


def test_a_script_of_the_users_that_calls_a_package_is_the_program(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import nice.cli as cli\ncli.train()\n")
    assert counts_as_users(tmp_path, (str(script), 2, "<module>"), *NICE) == ["<module>"]


def test_what_an_installed_script_reads_before_it_trains_is_at_its_own_line(tmp_path: Path) -> None:
    command, below = installed(tmp_path, "import nice.cli as cli\ncli.train()\ncli.read('a')\n")
    ids = FrameIds()
    reports = LoopReports(ProcessTable(PID, None), ids)
    for line, users in ((2, ["<module>", "main", "step"]), (3, ["<module>"])):
        stack = tuple(RawFrame(*frame) for frame in ((command, line, "<module>"), *below))
        reports.path_of((PID, 1), Counter({stack: 20}), CODE)
        assert [frame.function for frame in stack if ids.traits(frame).user] == users
