"""What a blocked thread waits for, of processes that really do."""

import os
import socket
import sys
from contextlib import ExitStack

import pytest

from tests.waiting import child_process, until
from tuimon.proc import connections

TCP = "s = socket.create_server(('127.0.0.1', 0)); a = socket.create_connection(s.getsockname())\n"
OWN_ENDS = {
    "tcp": TCP + "b = s.accept(); a.recv(9)",
    "not accepted": TCP + "a.recv(9)",
    "tcp6": "s = socket.create_server(('::1', 0), family=socket.AF_INET6)\n"
    "a = socket.create_connection(s.getsockname()[:2]); b = s.accept(); a.recv(9)",
    "pair": "a, b = socket.socketpair(); a.recv(9)",
    "pipe read": "r, w = os.pipe(); os.read(r, 9)",
    "pipe written": "r, w = os.pipe(); os.write(w, bytes(1 << 20))",
}
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/syscall"), reason="the kernel does not show system calls"
)


def program(code, **more):
    return child_process(sys.executable, "-c", "import os, socket, sys, time\n" + code, **more)


def blocked(pid):
    return until(lambda: connections.blocked_on(pid, pid), "a transfer")


@pytest.mark.parametrize("code", OWN_ENDS.values(), ids=OWN_ENDS)
def test_both_ends_in_one_process(code):
    if "::1" in code and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6")
    with program(code) as process:
        assert connections.other_ends(process.pid, blocked(process.pid), []) == {process.pid}
        assert not connections.is_sleeping(process.pid)
        assert not connections.has_other_connections(process.pid, [process.pid])


@pytest.mark.parametrize("kind", ["pipe", "pair", "tcp"])
def test_the_other_end_is_of_a_process_that_may_not_be_of_the_run(kind):
    me = os.getpid()
    with ExitStack() as ends:
        if kind == "pipe":
            theirs, _ = (ends.enter_context(open(fd, mode)) for fd, mode in zip(os.pipe(), "rw", strict=True))
        else:
            theirs, _ = map(ends.enter_context, connected() if kind == "tcp" else socket.socketpair())
        fd = theirs.fileno()
        process = ends.enter_context(program(f"os.read({fd}, 9)", pass_fds=[fd]))
        link = blocked(process.pid)
        assert me in (connections.other_ends(process.pid, link, [me]) or ())
        assert connections.other_ends(process.pid, link, []) is None
        assert connections.has_other_connections(process.pid, [process.pid]) == (kind == "tcp")
        assert not connections.has_other_connections(process.pid, [process.pid, me])


def connected():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def test_who_accepts_connections_listens():
    with program(f"{TCP}b = s.accept(); a.recv(9)") as process, program("r, w = os.pipe(); os.read(r, 9)") as other:
        assert until(lambda: connections.listens(process.pid), "a listening socket")
        blocked(other.pid)
        assert not connections.listens(other.pid)
