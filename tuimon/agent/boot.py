"""Brings the agent into a process that is already running. That process runs only the text of this file.

The work is done in a thread of its own, in which no signal handler of the program runs. The main thread waits
meanwhile: its calls may keep the GIL for seconds, and the work needs the GIL a hundred times. Forks by other threads
wait as well, so that no child begins with half an agent.

The monitor's request: ``folder`` (the monitor reads ``answer`` in it, and has given up once the folder is gone),
``agent`` (the agent's folder), ``rings`` (folders for rings).
"""

import _thread
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List

_PACKAGE = "_tuimon_agent"
#: While the folder has an entry of this name, the main thread waits for the thread that it has started for us.
WAITED_FOR = "wait"
#: Seconds between two attempts or polls. Times are counted in these, as both take longer on a busy machine.
_NAP_S = 0.005
#: Most tries if the moment is not right, 5 s; how long the main thread and forks wait at most, 2 s: the installation
#: takes some 50 ms.
_TRIES, _PAUSE = 1000, 400


def begin_in_thread(request: "Dict[str, Any]") -> None:
    """Install the agent from the calling thread, which was started for that."""

    def go_on() -> None:
        try:
            os.rmdir(os.path.join(request["folder"], WAITED_FOR))
        except OSError:  # done before, or the folder is gone
            pass

    _load(request, go_on)


def begin(request: "Dict[str, Any]") -> None:
    """Install the agent while the main thread waits here; an exception of a signal handler is raised afterwards."""
    raised: "List[BaseException]" = []
    try:
        done = _thread.allocate_lock()
        done.acquire()
        _thread.start_new_thread(_load, (request, lambda: done.release() if done.locked() else None))
        _wait(done, raised)
    except BaseException as error:
        if isinstance(error, RuntimeError) and error.__traceback__.tb_next is None:  # type: ignore[union-attr]
            _answer(request, {"status": "failed", "reason": repr(error)})  # no thread could be started
        else:
            raised.append(error)
    if raised:
        # have the main thread raise it once it is back in the program: a pending call that fails raises there
        import ctypes

        api = ctypes.pythonapi
        raiser = ctypes.py_object(_Raiser(raised[0]))
        api.Py_IncRef(raiser)  # the pending call keeps only its address
        api.Py_AddPendingCall(ctypes.cast(api.PyObject_IsTrue, ctypes.c_void_p), raiser)


def _wait(done: "Any", raised: "List[BaseException]") -> None:
    naps = iter(range(_PAUSE))
    while True:
        try:
            _has_acquired(done, naps)
            return
        except BaseException as error:  # raised by a signal handler, which runs here, in the main thread
            raised.append(error)


def _has_acquired(lock: "Any", naps: "Iterable[int]") -> bool:
    """Wait for a lock, at most for these naps; True if it was acquired."""
    return any(lock.acquire(True, _NAP_S) for _ in naps)


class _Raiser:
    """Raises an exception when its truth value is taken."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __bool__(self) -> bool:
        raise self.error


def _load(request: "Dict[str, Any]", go_on: "Callable[[], None]") -> None:
    """Install the agent, and answer. ``go_on`` lets the main thread go on."""
    try:
        package = _package(request["agent"])
        lock = _hold_forks(package)
        try:
            _install(request, package.__name__, go_on)
        finally:
            lock.release()
    except BaseException as error:
        _answer(request, {"status": "failed", "reason": repr(error)})
    finally:
        go_on()


def _install(request: "Dict[str, Any]", package: str, go_on: "Callable[[], None]") -> None:
    __import__(package + ".watch")
    watch = sys.modules[package + ".watch"]
    answer = watch.install_now(request["rings"])
    for _ in range(_TRIES):
        if answer["status"] != watch.RETRY:
            break
        go_on()  # the main thread must move on before the next try
        time.sleep(_NAP_S)
        answer = watch.install_now(request["rings"])
    if not _answer(request, answer) and answer["status"] == watch.INSTALLED:
        sys.modules[package + ".install"].uninstall()


def _package(agent: str) -> "Any":
    """The agent's package: that of the program's own ``import tuimon``, or one under a private name."""
    if "tuimon.agent.runtime" in sys.modules:
        return sys.modules["tuimon.agent"]
    known = sys.modules.get(_PACKAGE)
    runtime = sys.modules.get(_PACKAGE + ".runtime")
    if known is not None and (list(known.__path__) == [agent] or (runtime is not None and runtime.on)):
        return known
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]  # another version's, which has been withdrawn
    package = type(sys)(_PACKAGE)
    package.__path__ = [agent]
    package.__spec__ = type(sys.__spec__)(_PACKAGE, None, is_package=True)
    sys.modules[_PACKAGE] = package
    return package


def _hold_forks(package: "Any") -> "Any":
    """Take a lock and return it: forks wait until it is released."""
    lock = getattr(package, "installing", None)
    if lock is None:
        lock = package.installing = _thread.allocate_lock()

        def wait() -> None:
            if _has_acquired(lock, range(_PAUSE)):
                lock.release()

        os.register_at_fork(before=wait)
    if not _has_acquired(lock, range(_TRIES)):
        raise RuntimeError("another injection is under way")
    return lock


def _answer(request: "Dict[str, Any]", answer: "Dict[str, Any]") -> bool:
    """Leave the answer for the monitor; False if the monitor has given up."""
    path = os.path.join(request["folder"], "answer")
    try:
        with open(path + ".new", "w") as file:
            json.dump(answer, file)
        os.rename(path + ".new", path)
        return True
    except OSError:
        return False
