"""The output file: followed, searched for tracebacks, trimmed; and what a program printed."""

import os
from pathlib import Path

import pytest

from tuimon.sources.log.output import OutputTail, PrintedSource, last_traceback_line, printed_progress

MIB = 1024 * 1024


def test_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = OutputTail(str(path))
    assert tail.read() == b""
    path.write_bytes(b"one\xff\x1b[31m")
    assert tail.read() == b"one\xff\x1b[31m"
    assert tail.read() == b""
    with open(path, "ab") as file:
        file.write(b"two")
    assert tail.read() == b"two"
    assert tail.skipped_bytes == 0


def test_a_flood_is_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"x" * 100_000 + b"end")
    tail = OutputTail(str(path))
    assert tail.read(10) == b"xxxxxxxend"
    assert tail.skipped_bytes == 100_003 - 10


def test_a_truncated_file_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"long output")
    tail = OutputTail(str(path))
    tail.read()
    path.write_bytes(b"new")
    assert tail.read() == b"new"


def test_trimming_frees_the_disk_and_keeps_offsets(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = OutputTail(str(path))
    with open(path, "ab", buffering=0) as file:
        for number in range(32):
            file.write(bytes([number]) * MIB)
        os.fsync(file.fileno())
        before = path.stat().st_blocks
        tail.trim(keep_bytes=4 * MIB)
        after = path.stat()
        if after.st_blocks == before:
            pytest.skip("this file system punches no holes")
        assert after.st_size == 32 * MIB
        assert after.st_blocks * 512 <= 6 * MIB
        file.write(b"tail")
    assert tail.read(8) == b"\x1f\x1f\x1f\x1ftail"


TRACEBACK = """epoch 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
    ~~~~^^
  File "train.py", line 1, in main
    raise KeyError("x")
KeyError: 'x'
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (TRACEBACK, "KeyError: 'x'"),
        (TRACEBACK + "Exception ignored in: <function f>\nbye\n", "KeyError: 'x'"),
        (
            TRACEBACK.replace("KeyError: 'x'", "torch.OutOfMemoryError: CUDA, out."),
            "torch.OutOfMemoryError: CUDA, out.",
        ),
        (TRACEBACK + TRACEBACK.replace("KeyError: 'x'", "KeyboardInterrupt"), "KeyboardInterrupt"),
        (TRACEBACK.replace("KeyError: 'x'", "\x1b[31mValueError\x1b[0m: \x07[bold]"), "ValueError: [bold]"),
        (TRACEBACK.replace("\n", "\r\n"), "KeyError: 'x'"),
        (TRACEBACK.replace("KeyError: 'x'", "a.ChildFailedError: \n====\ntrain.py FAILED"), "a.ChildFailedError:"),
        ("loss: 3\nError: not a traceback\n", None),
        ("", None),
        (TRACEBACK[:60], None),
    ],
)
def test_the_last_line_of_the_last_traceback(output: str, line: str | None) -> None:
    assert last_traceback_line(output.encode()) == line


def test_binary_output_has_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(os.urandom(200_000) + b"\n" + TRACEBACK.encode())
    assert OutputTail(str(path)).last_traceback_line() == "KeyError: 'x'"


BAR = "Epoch 1:  45%|████▌     | 450/1000 [00:30<00:37, 14.8it/s, loss=0.312]"


@pytest.mark.parametrize(
    ("rows", "progress"),
    [
        ([BAR], ("Epoch 1: 450 of 1000, 00:37 left", "0.312")),
        (["  0%|          | 0/50 [00:00<?, ?it/s]"], ("0 of 50", "")),
        (["100%|██████████| 12/12 [1:02:03<00:00,  1.50s/it]"], ("12 of 12, 00:00 left", "")),
        (["step 7/200 | loss: 1.5e-3 | lr 0.1"], ("step 7 of 200", "1.5e-3")),
        (["Iter 7 of 200", "train_loss 0.25"], ("iter 7 of 200", "0.25")),
        (["step 1/9 loss 0.9", "step 2/9 loss 0.8"], ("step 2 of 9", "0.8")),
        (["downloading:  12%|█▏        | 12.0M/100M [00:01<00:09, 9.5MB/s]"], ("", "")),
        (["weight loss program", "loss: nan", "hello"], ("", "")),
        ([], ("", "")),
    ],
)
def test_progress(rows, progress):
    assert printed_progress(rows) == progress


def test_it_follows_the_output(tmp_path):
    output = tmp_path / "output"
    source = PrintedSource(str(output), 42, clock=lambda: 7.0)
    assert list(source.read()) == []
    output.write_text(f"{BAR}\r\x1b[2K{BAR.replace('450', '451')}")
    (record,) = source.read()
    assert (record.t, record.pid) == (7.0, 42)
    assert (record.place, record.loss) == ("Epoch 1: 451 of 1000, 00:37 left", "0.312")
    with output.open("a") as file:
        file.write("\nsaved\n")
    assert list(source.read()) == []  # as before
    with output.open("a") as file:
        file.write("loss: 0.2\n")
    assert [(record.place, record.loss) for record in source.read()] == [("Epoch 1: 451 of 1000, 00:37 left", "0.2")]
