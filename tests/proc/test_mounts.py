"""The files that a process has open, and the file systems that hold them."""

from __future__ import annotations

import os

import pytest

from tuimon.proc.mounts import Mount, open_files, parse_mount


@pytest.mark.parametrize(
    ("line", "mount"),
    [
        (
            "36 22 0:52 / /mnt/nfs rw,noatime shared:1 master:2 - nfs4 server:/data rw,vers=4.2",
            Mount("/mnt/nfs", "nfs4"),
        ),
        (r"40 22 0:60 / /mnt/my\040data rw - fuse.sshfs host: rw", Mount("/mnt/my data", "fuse.sshfs")),
        *((line, None) for line in ("", "1 2 3", "1 2 0:1 / /a rw", "22 1 254:0 / /a rw -")),
    ],
)
def test_a_line_of_mountinfo(line, mount):
    assert parse_mount(line) == mount


def test_open_files_and_no_pipes(tmp_path):
    data, log = tmp_path / "data.bin", tmp_path / "train.log"
    data.write_bytes(b"1")
    read_end, write_end = os.pipe()
    with data.open("rb"), log.open("w"):
        found = {each.path: each for each in open_files(os.getpid())}
    os.close(read_end)
    os.close(write_end)
    assert found[str(data)].is_read_only and not found[str(log)].is_read_only
    assert found[str(data)].mount == found[str(log)].mount
    assert str(data).startswith(found[str(data)].mount.point)
    assert not any(path.startswith(("pipe:", "socket:", "/dev/")) for path in found)
    assert not list(open_files(2**22 + 1))
