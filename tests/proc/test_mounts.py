"""The file system that holds a path, and the files of a process that it may read."""

from __future__ import annotations

import os

import pytest

from tuimon.proc.mounts import Mount, files_read, mount_of, mounts_of, parse_mount

LINES = (
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
    "25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw",
    "36 22 0:52 / /mnt/nfs rw,noatime shared:1 master:2 - nfs4 server:/data rw,vers=4.2",
    r"40 22 0:60 / /mnt/my\040data rw - fuse.sshfs host: rw",
    "41 36 0:61 / /mnt/nfs/scratch rw - xfs /dev/sdb rw",
)
MOUNTS = [mount for line in LINES if (mount := parse_mount(line)) is not None]


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/home/me/a.bin", Mount("/", "ext4")),
        ("/mnt/nfs/a/b.jpg", Mount("/mnt/nfs", "nfs4")),
        ("/mnt/nfs2/a.jpg", Mount("/", "ext4")),
        ("/mnt/nfs/scratch/a", Mount("/mnt/nfs/scratch", "xfs")),
        ("/mnt/my data/a", Mount("/mnt/my data", "fuse.sshfs")),
        ("/dev/shm/torch_1", None),
    ],
)
def test_a_path_lies_on_the_deepest_mount_above_it(path, mount):
    assert mount_of(path, MOUNTS) == mount


def test_of_mounts_at_one_point_the_latest_counts():
    assert mount_of("/a", [Mount("/", "ext4"), Mount("/", "overlay")]) == Mount("/", "overlay")


@pytest.mark.parametrize("line", ["", "1 2 3", "1 2 0:1 / /a rw", "22 1 254:0 / /a rw -"])
def test_a_damaged_line_is_none(line):
    assert parse_mount(line) is None


def test_files_that_are_only_written_and_pipes_are_no_data(tmp_path):
    data, log = tmp_path / "data.bin", tmp_path / "train.log"
    data.write_bytes(b"1")
    read_end, write_end = os.pipe()
    with data.open("rb"), log.open("w"):
        found = files_read(os.getpid())
    os.close(read_end)
    os.close(write_end)
    assert str(data) in found and str(log) not in found
    assert not any(path.startswith(("pipe:", "socket:", "/dev/")) for path in found)
    assert any(mount.point == "/" for mount in mounts_of(os.getpid())) and not mounts_of(2**22 + 1)
