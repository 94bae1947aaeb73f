"""Each frame has one id, and is listed once."""

from __future__ import annotations

from pathlib import Path

from tuimon.proc.target_files import TargetFiles
from tuimon.records import Frame
from tuimon.sources.stacks.frames.frame_ids import FrameIds, RawFrame

CALL = RawFrame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1786, "_call_impl")

FILES = TargetFiles(None)


def test_frames_are_listed_once_and_bounded(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("first\nsecond\n")
    ids = FrameIds(limit=3)
    here = str(script)
    assert ids.id_of(RawFrame(here, 2, "f"), FILES) == 0
    assert ids.id_of(CALL, FILES) == 1
    assert ids.id_of(RawFrame(here, 2, "f"), FILES) == 0
    assert ids.pop_new_frames() == (
        0,
        [Frame(here, 2, "f", "second", True), Frame(CALL.file, CALL.line, CALL.function)],
    )
    assert ids.pop_new_frames() == (2, [])
    assert [ids.id_of(RawFrame(here, line, "f"), FILES) for line in (1, 8, 9, 1, 8)] == [2, 3, 3, 2, 3]
    first, new = ids.pop_new_frames()
    assert (first, [frame.function for frame in new]) == (2, ["f", "(more frames)"])
    assert ids.id_of(RawFrame(here, 10, "f"), FILES) == 3
    assert ids.pop_new_frames() == (4, [])


def test_a_librarys_line_that_steps_the_users_environment_has_text_where_it_does(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "learns" / "runner.py"
    library.parent.mkdir(parents=True)
    library.write_text("obs, reward, done = self.env.step(act(obs))\nself.bar.step(act(obs))\n")
    own = RawFrame(str(tmp_path / "train.py"), 7, "step")
    act = RawFrame(str(tmp_path / "train.py"), 9, "act")
    ids = FrameIds()
    environment, bar = (RawFrame(str(library), line, "learn") for line in (1, 2))
    stacks = (environment, act), (environment, own), (bar, act), (bar, own), (environment, own, act), (environment, act)
    numbers = [ids.ids_of(stack, FILES) for stack in stacks]
    texts = [frame.source for frame in ids.pop_new_frames()[1]]
    assert [texts[stack[0]] for stack in numbers] == ["", library.read_text().splitlines()[0], "", "", texts[2], ""]
    assert len(texts) == 5  # each once, and the line that steps the environment with its text besides
