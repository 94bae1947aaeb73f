"""Files that tuimon writes are their owner's alone, and overwrite nothing that was not named."""

from tuimon.new_files import folder_hint, free_name


def test_a_name_is_free_if_nothing_has_it_with_any_ending(tmp_path):
    (tmp_path / "x-2.txt").symlink_to(tmp_path / "nothing")
    (tmp_path / "x.json").touch()
    stem = str(tmp_path / "x")
    assert free_name(stem, ".json", ".txt") == f"{stem}-3"
    assert free_name(stem, ".svg") == stem


def test_a_folder_is_to_be_made_only_where_one_can_be(tmp_path):
    missing = tmp_path / "runs" / "today"
    (tmp_path / "file").write_text("")
    assert folder_hint(str(missing / "run.jsonl")) == f"Make the folder first: mkdir -p {missing}"
    assert folder_hint("runs/run.jsonl") == "Make the folder first: mkdir -p runs"
    assert folder_hint(str(tmp_path / "run.jsonl")) is None
    assert folder_hint(str(tmp_path / "file" / "run.jsonl")) is None
    assert folder_hint("/proc/x") is None and folder_hint("/proc/none/x") is None
