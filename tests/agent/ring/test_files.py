"""Where a ring is made, and which rings are removed."""

import os
import stat
import subprocess
import sys

import pytest

from tests.agent.folders import file_names, grow_old
from tests.agent.programs import as_agents, environment, fake_torch, printed_json, python
from tuimon.agent.ring import files, layout, paths
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.agent.ring.writer import RingWriter

pytestmark = pytest.mark.trust


def test_the_ring_is_found_by_pid(program):
    found = program("print(json.dumps([paths.ring_path(os.getpid()), runtime._writer.path]))")
    assert found[0] == found[1]


def test_no_descriptor_of_the_ring_has_the_number_of_a_closed_stream(program):
    """C code goes on printing to 1 and 2: it would print into the ring."""
    found = program("""
saved = os.dup(1), os.dup(2)
os.closerange(0, 3)
from _tuimon_agent.ring.files import make_ring
ring = make_ring()
low = [number for number in (0, 1, 2) if os.path.exists("/proc/self/fd/%d" % number)]
os.dup2(saved[0], 1), os.dup2(saved[1], 2)
print(json.dumps([ring is not None, low]))
""")
    assert found == [True, []]


def test_the_directory_is_private(program, tmp_path):
    program("print('null')")
    assert stat.S_IMODE((tmp_path / "rings").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_can_write_to_is_left_as_it_is(tmp_path, monkeypatch, mode):
    (tmp_path / "rings").mkdir()
    (tmp_path / "rings").chmod(mode)
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    assert files.make_ring() is None
    assert stat.S_IMODE((tmp_path / "rings").stat().st_mode) == mode
    assert paths.refused_directories() == {
        str(tmp_path / "rings"): f"other users may write to {tmp_path}/rings (mode {mode:o})"
    }
    assert paths.ring_directory() is None


def test_a_folder_that_others_may_only_read_is_used(tmp_path, monkeypatch):
    (tmp_path / "rings").mkdir(mode=0o755)
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    files.make_ring().unlink()
    assert stat.S_IMODE((tmp_path / "rings").stat().st_mode) == 0o755


def test_a_folder_in_which_others_can_replace_it_is_refused(tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "shared" / "rings"))
    assert files.make_ring() is None
    (tmp_path / "shared").chmod(0o1777)  # as /tmp: its sticky bit leaves what is ours alone
    files.make_ring().unlink()
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "link" / "rings"))
    assert files.make_ring() is None


def test_somebody_elses_folder_in_the_first_place_hides_no_ring(tmp_path, monkeypatch):
    squatted, ours = tmp_path / "squatted", tmp_path / "ours"
    squatted.mkdir(mode=0o755)
    monkeypatch.setattr(paths, "ring_directories", lambda: [str(squatted), str(ours)])
    monkeypatch.setattr(files, "ring_directories", paths.ring_directories)
    real = os.lstat

    def lstat(path, **more):
        info = real(path, **more)
        if not str(path).startswith(str(squatted)):
            return info
        return os.stat_result([*info[:4], 12345, *info[5:10]])

    monkeypatch.setattr(os, "lstat", lstat)
    made = files.make_ring()
    (squatted / os.path.basename(made.path)).write_text("")
    assert made.path == paths.ring_path(os.getpid()) == str(ours / paths.ring_name(os.getpid()))
    assert paths.refused_directories() == {str(squatted): f"{squatted} belongs to user 12345"}
    assert paths.ring_directory() == str(ours)
    made.unlink()


def test_a_link_in_place_of_the_directory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rings").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    assert files.make_ring() is None
    assert file_names(tmp_path / "elsewhere") == []


def test_a_pipe_in_place_of_a_ring_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "1-1.ring")
    with pytest.raises(RingError, match="no file"):
        RingReader(str(tmp_path / "1-1.ring"))


def test_somebody_elses_directory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert files.make_ring() is None
    assert file_names(tmp_path / "rings") == []


def test_a_full_first_place_falls_back_to_the_second(tmp_path, monkeypatch):
    places = [str(tmp_path / "full"), str(tmp_path / "roomy")]
    monkeypatch.setattr(files, "ring_directories", lambda: places)
    real = os.write

    def write(handle, data):
        if os.readlink(f"/proc/self/fd/{handle}").startswith(places[0]):
            raise OSError(28, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", as_agents(write))
    made = files.make_ring()
    assert made is not None and made.path.startswith(places[1])
    assert file_names(tmp_path / "full") == []
    made.unlink()


SHARING = """
import json, torch
from _tuimon_agent import runtime
from _tuimon_agent.ring import paths
runtime.open_ring()
shared = torch.zeros(62 << 20, dtype=torch.uint8).share_memory_()
print(json.dumps([runtime.writer().path, paths.ring_directory()]))
"""


def test_small_shared_memory_is_left_to_the_training(tmp_path):
    """Docker's default: 64 MB, of which the training takes 62."""
    pytest.importorskip("torch")
    small = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*small, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted")
    env = environment(tmp_path, {"TMPDIR": str(tmp_path)})
    del env["TUIMON_RING_DIR"]
    ring, folder = printed_json(python(*small[1:], sys.executable, "-c", SHARING, env=env, executable=small[0]))
    assert os.path.dirname(ring) == folder == str(tmp_path / f"tuimon-{os.getuid()}")


def dead_pid():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_rings_of_dead_processes_are_swept(program, tmp_path):
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    alive = f"{os.getpid()}-{paths.start_ticks(os.getpid())}.ring"
    dead = [f"{dead_pid()}-12345.ring", f"{os.getpid()}-1.ring", f"{dead_pid()}-5.ring.77"]
    kept = [alive, "notes.txt", "x-y.ring", "\u00b2-1.ring"]
    for name in dead + kept:
        (folder / name).write_text("")
    young = f"{dead_pid()}-6.ring"
    grow_old(folder)
    (folder / young).write_text("")
    program("print('null')", TUIMON_RUN="")
    assert file_names(folder) == sorted([*kept, young])  # the monitor may still want it


def test_a_ring_in_use_is_not_swept_even_if_its_pid_means_nothing_here(tmp_path):
    """Containers may share /dev/shm and not their pids."""
    writer = RingWriter(str(tmp_path / f"{dead_pid()}-12345.ring"), slot_count=64)
    path = writer.path
    grow_old(tmp_path)
    files.remove_stale(str(tmp_path))
    assert os.path.exists(path)
    del writer  # with its map goes the lock
    files.remove_stale(str(tmp_path))
    assert not os.path.exists(path)


def test_a_killed_process_leaves_a_ring_to_be_read_and_swept(program, tmp_path):
    env = environment(tmp_path / "rings", path=fake_torch(tmp_path))
    script = "import os, sys, torch; sys.modules['_tuimon_agent.runtime'].emit(12); os._exit(0)"
    python("-c", script, env=env)
    (left,) = file_names(tmp_path / "rings")
    reader = RingReader(str(tmp_path / "rings" / left))
    assert [marker.kind for marker in reader.read()] == [layout.STEP]
    grow_old(tmp_path / "rings")
    program("print('null')", TUIMON_RUN="")
    assert file_names(tmp_path / "rings") == []


def test_no_ring_is_looked_for_in_a_folder_that_is_refused(tmp_path, monkeypatch):
    squatted = tmp_path / "squatted"
    squatted.mkdir()
    squatted.chmod(0o777)
    (squatted / paths.ring_name(os.getpid())).write_text("")  # or a hard link to a file of ours
    monkeypatch.setattr(paths, "ring_directories", lambda: [str(squatted)])
    with pytest.raises(FileNotFoundError):
        paths.ring_path(os.getpid())
