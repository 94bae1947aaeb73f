"""The agent closes no descriptor of the program's, and calls nothing that a strict sandbox kills for."""

import platform

import pytest

from tests.agent.programs import environment, printed_json, python

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.trust]

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


def test_files_that_got_the_numbers_of_closed_descriptors_stay_open(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(DAEMON)
    ours = printed_json(python(str(script), env=environment(tmp_path / "rings"), cwd=tmp_path))
    assert list((tmp_path / "rings").iterdir()) == []  # it had a ring, and has left
    assert ours == [40, 40, 40]


#: <linux/seccomp.h>, <linux/filter.h>: the process is killed at a system call of these numbers.
SANDBOX = """
import ctypes, struct
program = [(0x20, 0, 0, 0)]  # load the number
program += [jump for number in NUMBERS for jump in ((0x15, 0, 1, number), (0x06, 0, 0, 0x80000000))]
program += [(0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))
header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, header, 0, 0) == 0
"""

CALLS = {"fallocate": 285, "flock": 73}  # x86_64; with workers, torch calls fallocate itself

SANDBOXED = """
import json, torch
from torch.utils.data import DataLoader
weight = torch.nn.Parameter(torch.zeros(2))
for batch in DataLoader(torch.zeros(4, 2)):
    (weight * batch).sum().backward()
print(json.dumps(len(os.listdir(os.environ["TUIMON_RING_DIR"]))))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls")
@pytest.mark.parametrize("call", CALLS)
def test_a_sandbox_that_kills_for_a_rare_system_call(call, tmp_path):
    sandbox = "import os\n" + SANDBOX.replace("NUMBERS", str([CALLS[call]]))
    done = python("-c", sandbox + SANDBOXED, env=environment(tmp_path / "rings"))
    assert printed_json(done) == 1, done.stderr
