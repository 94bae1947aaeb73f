"""Files are read as the process that names them could, not as we can."""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tests.waiting import child_process, until
from tuimon.proc.processes import start_unix_s
from tuimon.proc.procfs import start_ticks
from tuimon.proc.target_files import OURS, Rights, TargetFiles, rights_of

STRANGER = Rights(os.getpid(), frozenset({12345}), frozenset({12345}))
LIMIT = 1 << 20
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of another user")


@pytest.fixture
def public():
    """A folder that everybody may enter."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def source(path, mode):
    path.write_text("text")
    path.chmod(mode)
    return str(path)


def test_mode_bits_decide(public):
    mine, all_may = source(public / "mine.py", 0o600), source(public / "all.py", 0o644)
    assert STRANGER.read(mine, LIMIT) is None
    content = STRANGER.read(all_may, LIMIT)
    assert content is not None and content.data == b"text"
    assert OURS.read(mine, LIMIT) == Rights(os.getpid(), all_files=True).read(mine, LIMIT) is not None
    of_group = STRANGER._replace(gids=frozenset({os.stat(mine).st_gid}))
    assert of_group.read(source(public / "group.py", 0o640), LIMIT) is not None
    assert of_group.read(source(public / "others.py", 0o604), LIMIT) is None  # the group's bits come first
    setuid = STRANGER._replace(uids=STRANGER.uids | {os.getuid()})  # both users must have the right
    assert setuid.read(mine, LIMIT) is None
    assert setuid.read(all_may, LIMIT) is not None


def test_every_folder_on_the_way_is_checked(public):
    (public / "closed").mkdir(mode=0o700)
    closed = source(public / "closed" / "a.py", 0o644)
    assert STRANGER.read(closed, LIMIT) is None
    (public / "link.py").symlink_to(closed)
    assert STRANGER.read(str(public / "link.py"), LIMIT) is None
    assert OURS.read(str(public / "link.py"), LIMIT) is not None


def test_links_and_dots(public):
    source(public / "a.py", 0o644)
    (public / "sub").mkdir()
    (public / "sub" / "up").symlink_to("../a.py")
    (public / "sub" / "absolute").symlink_to(public / "a.py")
    (public / "loop").symlink_to("loop")
    for name in ("sub/up", "sub/absolute", "sub/../a.py", ".//a.py"):
        assert STRANGER.read(f"{public}/{name}", LIMIT) is not None
    for path in (f"{public}/loop", "a.py", "", f"{public}/a.py/b", f"{public}/gone", "a\0b", "/" + "x/" * 5000):
        assert STRANGER.read(path, LIMIT) is None


def test_only_regular_files_of_bounded_size(public):
    os.mkfifo(public / "pipe")
    large = source(public / "large.py", 0o644)
    os.truncate(large, LIMIT + 1)
    for rights in (OURS, STRANGER):
        for path in (f"{public}/pipe", str(public), large, "/dev/zero", "/proc/self/environ", "/proc/kcore"):
            assert rights.read(path, LIMIT) is None


def test_we_have_our_own_rights():
    assert rights_of(os.getpid()) == OURS
    with child_process("sleep", "60") as child:
        assert rights_of(child.pid) == OURS
        child.kill()
        until(lambda: rights_of(child.pid) is None)  # a zombie


def test_the_last_rights_count_once_it_has_ended(tmp_path):
    with child_process("sleep", "60") as child:
        began = start_unix_s(start_ticks(child.pid))
        files = TargetFiles(child.pid, began)
        other = TargetFiles(child.pid, began - 100.0)  # another process that had this pid
    assert files.refresh() == OURS
    assert other.refresh() is None
    assert TargetFiles(child.pid, began).rights is None
    assert TargetFiles(child.pid, began, ended=OURS).rights == OURS


@as_root
def test_another_users_process_reads_what_that_user_may(public):
    mine, all_may = source(public / "mine.py", 0o600), source(public / "all.py", 0o644)
    with child_process("sleep", "60", user=65534, group=65534, extra_groups=[]) as child:
        files = TargetFiles(child.pid)
        rights = until(lambda: files.refresh() != OURS and files.rights)
        assert rights.read(mine, LIMIT) is None
        assert rights.read(all_may, LIMIT) is not None


@as_root
def test_a_path_means_the_file_below_the_processs_own_root(public):
    (public / "jail").mkdir()
    source(public / "jail" / "a.py", 0o600)
    source(public / "secret", 0o600)
    (public / "jail" / "link.py").symlink_to("/a.py")
    (public / "jail" / "escape.py").symlink_to("../../../../../../secret")
    (public / "jail" / "host.py").symlink_to(public / "secret")
    pid = os.fork()
    if not pid:
        try:
            os.chroot(public / "jail")
            while True:
                time.sleep(60)
        finally:
            os._exit(1)
    try:
        rights = until(lambda: (found := rights_of(pid)) != OURS and found)
        assert rights.read("/a.py", LIMIT) == rights.read("/link.py", LIMIT) is not None
        for path in ("/escape.py", "/host.py", f"{public}/secret", "/etc/passwd", "/../../etc/passwd"):
            assert rights.read(path, LIMIT) is None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
