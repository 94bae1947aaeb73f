"""Where a ring is made, why none can be, which rings are removed, and whose descriptors stay open."""

import os
import stat
import subprocess
import sys

import pytest

import tuimon
from tests.agent.programs import as_agents, environment, file_names, grow_old, printed_json, python
from tests.state_size import size_of
from tests.warm_torch import warm_python
from tuimon.agent import runtime
from tuimon.agent.outside import attempt
from tuimon.agent.ring import files
from tuimon.agent.ring.files import own_reason, reason_left_by
from tuimon.agent.ring.writer import RING_BYTES, RingWriter, make_ring, remove_stale

pytestmark = pytest.mark.trust


def test_no_descriptor_of_the_ring_has_the_number_of_a_closed_stream(program):
    """C code goes on printing to 1 and 2: it would print into the ring."""
    found = program("""
saved = os.dup(1), os.dup(2)
os.closerange(0, 3)
from _tuimon_agent.ring.writer import make_ring
ring = make_ring()
low = [number for number in (0, 1, 2) if os.path.exists("/proc/self/fd/%d" % number)]
os.dup2(saved[0], 1), os.dup2(saved[1], 2)
print(json.dumps([ring is not None, low]))
""")
    assert found == [True, []]


@pytest.mark.parametrize(("mode", "is_used"), [(0o777, False), (0o775, False), (0o1777, False), (0o755, True)])
def test_a_folder_that_others_can_write_to_is_left_as_it_is(tmp_path, monkeypatch, mode, is_used):
    rings = tmp_path / "rings"
    rings.mkdir()
    rings.chmod(mode)
    monkeypatch.setenv("TUIMON_RING_DIR", str(rings))
    reason = {str(rings): f"other users may write to {rings} (mode {mode:o})"}
    assert files.refused_directories() == ({} if is_used else reason)
    assert files.ring_directory() == (str(rings) if is_used else None)
    made = make_ring()
    assert (made is not None) == is_used and stat.S_IMODE(rings.stat().st_mode) == mode
    if made is not None:
        made.unlink()


def test_a_folder_in_which_others_can_replace_it_is_refused(tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "shared" / "rings"))
    assert make_ring() is None
    (tmp_path / "shared").chmod(0o1777)  # as /tmp: its sticky bit leaves what is ours alone
    make_ring().unlink()
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "link" / "rings"))
    assert make_ring() is None


def test_somebody_elses_folder_in_the_first_place_hides_no_ring(tmp_path, monkeypatch):
    squatted, ours = tmp_path / "squatted", tmp_path / "ours"
    squatted.mkdir(mode=0o755)
    monkeypatch.setattr(files, "ring_directories", lambda: [str(squatted), str(ours)])
    real = os.lstat

    def lstat(path, **more):
        info = real(path, **more)
        if not str(path).startswith(str(squatted)):
            return info
        return os.stat_result([*info[:4], 12345, *info[5:10]])

    monkeypatch.setattr(os, "lstat", lstat)
    made = make_ring()
    (squatted / os.path.basename(made.path)).write_text("")
    assert made.path == files.ring_path(os.getpid()) == str(ours / files.ring_name(os.getpid()))
    assert files.refused_directories() == {str(squatted): f"{squatted} belongs to user 12345"}
    assert files.ring_directory() == str(ours)
    made.unlink()


def test_a_link_in_place_of_the_directory_is_refused(tmp_path, shared_memory):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rings").symlink_to(tmp_path / "elsewhere")
    assert make_ring() is None
    assert file_names(tmp_path / "elsewhere") == []


def test_somebody_elses_directory_is_refused(tmp_path, monkeypatch, shared_memory):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert make_ring() is None
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
    made = make_ring()
    assert made is not None and made.path.startswith(places[1])
    assert file_names(tmp_path / "full") == []
    made.unlink()


SHARING = """
import json, torch
from _tuimon_agent import runtime
from _tuimon_agent.ring import files
runtime.open_ring()
shared = torch.zeros(62 << 20, dtype=torch.uint8).share_memory_()
print(json.dumps([runtime.writer().path, files.ring_directory()]))
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
    alive = f"{os.getpid()}-{files.start_ticks(os.getpid())}.ring"
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
    remove_stale(str(tmp_path))
    assert os.path.exists(path)
    del writer  # with its map goes the lock
    remove_stale(str(tmp_path))
    assert not os.path.exists(path)


def test_no_ring_is_looked_for_in_a_folder_that_is_refused(tmp_path, monkeypatch):
    squatted = tmp_path / "squatted"
    squatted.mkdir()
    squatted.chmod(0o777)
    (squatted / files.ring_name(os.getpid())).write_text("")  # or a hard link to a file of ours
    monkeypatch.setattr(files, "ring_directories", lambda: [str(squatted)])
    with pytest.raises(FileNotFoundError):
        files.ring_path(os.getpid())


pytest.importorskip("torch")

#: As daemons do it: every descriptor is closed that the program has not opened itself. Files of its own then get the
#: numbers. At the end, those of them that are still the files that were opened, of 40 each time.
DAEMON = """
import json, os, sys, torch
from torch.utils.data import DataLoader

def own_files():
    os.closerange(3, 256)
    handles = [os.open(os.path.abspath(f"{number}.txt"), os.O_CREAT | os.O_RDWR) for number in range(40)]
    return {handle: os.fstat(handle).st_ino for handle in handles}

def still_ours():
    return sum(os.path.exists(f"/proc/self/fd/{n}") and os.fstat(n).st_ino == inode for n, inode in files.items())

loader = DataLoader(torch.zeros(200, 2), batch_size=1)
weight = torch.nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
kept = []
for step, batch in enumerate(loader):
    if step == 2:
        files = own_files()
    (weight * batch).sum().backward()
    optimizer.step()
kept.append(still_ours())
child = os.fork()
if not child:
    os._exit(still_ours())
kept.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if "_tuimon_agent" in sys.modules:
    from _tuimon_agent import install
    install.uninstall()
    kept.append(still_ours())
print(json.dumps(kept))
"""


@pytest.mark.torch
def test_files_that_got_the_numbers_of_closed_descriptors_stay_open(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(DAEMON)
    ours = printed_json(warm_python(str(script), env=environment(tmp_path / "rings"), cwd=tmp_path))
    assert list((tmp_path / "rings").iterdir()) == []  # it had a ring, and has left
    assert ours == [40, 40, 40]


ASKS_FOR_A_RING = """
import sys
from tuimon.agent.ring.writer import make_ring
print(make_ring(), flush=True)
sys.stdin.read()
"""


def test_without_memfd_nothing_is_left_and_nothing_breaks(monkeypatch):
    monkeypatch.delattr("os.memfd_create")
    monkeypatch.setenv("TUIMON_RING_DIR", os.devnull)
    assert attempt(make_ring) is None
    assert own_reason() is not None


def test_a_long_reason_is_cut():
    child = "from tuimon.agent.ring.files import leave_reason, reason_left_by; import os; leave_reason('x' * 5000)"
    done = subprocess.run(
        [sys.executable, "-c", f"{child}; print(len(reason_left_by(os.getpid())))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == f"{249 - len('tuimon-no-ring: ')}\n"


LIMITED = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (%d, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (RING_BYTES - 1, f"a ring has {RING_BYTES} bytes, files may have {RING_BYTES - 1} (ulimit -f)"),
        (0, f"a ring has {RING_BYTES} bytes, files may have 0 (ulimit -f)"),
        (RING_BYTES, None),  # it is made
    ],
)
def test_a_limit_on_the_size_of_files_leaves_the_reason_and_kills_nobody(limit, reason, tmp_path):
    """Beyond the limit the kernel sends SIGXFSZ, which ends a process that has it at its default."""
    child = subprocess.Popen(
        [sys.executable, "-c", LIMITED % limit + ASKS_FOR_A_RING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "rings"), "PYTHONPATH": ":".join(sys.path)},
    )
    made = child.stdout.readline()
    assert (made == "None\n", reason_left_by(child.pid)) == (reason is not None, reason)
    child.communicate()
    assert child.returncode == 0


def test_a_module_of_the_programs_that_torch_does_not_import_is_not_imported(tmp_path):
    (tmp_path / "resource.py").write_text("raise SystemExit('imported')")
    child = subprocess.Popen(
        [sys.executable, "-c", ASKS_FOR_A_RING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "rings"), "PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
    )
    made = child.stdout.readline()
    child.communicate()
    assert made not in ("", "None\n") and child.returncode == 0


def names_in(reader):
    """How many the ring has."""
    return sum(reader.name(number) != "?" for number in range(1, 5000))


def test_counters_in_names_do_not_fill_the_table(monitored):
    sizes = []
    for i in range(6000):
        with tuimon.phase(f"iteration {i}"):
            pass
        if i % 500 == 499:
            sizes.append(size_of(runtime.writer()))
    assert max(sizes) <= 1.1 * sizes[0]
    assert names_in(monitored.reader) <= 66
    assert monitored()[-2][1][0] == "iteration #"
    with tuimon.phase("evaluate"):
        pass
    assert monitored()[0][1][0] == "evaluate"


def test_made_up_names_of_any_kind_are_bounded(monitored):
    for i in range(5000):
        tuimon.mark("".join(chr(97 + int(digit)) for digit in str(i)))
    assert names_in(monitored.reader) <= 1025
    assert monitored()[-1][1][0] == "(more names)"


class Unprintable:
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("name", "shown"),
    [(None, "None"), (7, "7"), ([1], "[1]"), (Unprintable(), "?"), ("a\x1fb", "a?b"), ("x" * 999, "x" * 200)],
)
def test_strange_names(monitored, name, shown):
    with tuimon.phase(name):
        pass
    assert monitored()[0][1][0] == shown
