"""Imports torch once, then forks a program for each request: ``python server.py HANDLE``. Ends with the connection.

A request is one message with the handles of a connection and of the program's streams. What to run comes on that
connection, as JSON up to its end: words, env, cwd. The answer is a line with the pid and one with the exit code.
"""

import contextlib
import gc
import importlib
import json
import os
import socket
import sys
from types import CodeType, ModuleType

import numpy
import torch._dynamo  # what all this is for; the first optimizer of a process imports _dynamo


def main() -> None:
    """Fork as asked; in the forked process, return once the program has run."""
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            message, handles, _, _ = socket.recv_fds(requests, 1, 4)
            with contextlib.suppress(ChildProcessError):  # those who have answered
                while os.waitpid(-1, 0 if not message else os.WNOHANG)[0]:
                    pass
            if not message:
                return
            if os.fork() == 0:
                break
            for handle in handles:
                os.close(handle)
    answer, *streams = handles
    with open(answer, "rb", closefd=False) as file:
        request = json.load(file)
    if pid := os.fork():
        for handle in streams:
            os.close(handle)
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it
            os.write(answer, f"{pid}\n".encode())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(answer, f"{code}\n".encode())
        os._exit(0)
    os.close(answer)
    for number, handle in enumerate(streams):
        os.dup2(handle, number)
        os.close(handle)
    run(**request)


def run(words: list[str], env: dict[str, str], cwd: str) -> None:
    """What ``python WORDS...`` does once it has started."""
    torch.seed()  # each process has random numbers of its own
    numpy.random.seed()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    code, sys.argv, folder = program(words)
    sys.path[0:1] = [folder, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")  # ours, where the environment has it
    exec(code, sys.modules["__main__"].__dict__)


def program(words: list[str]) -> tuple[CodeType, list[str], str]:
    """The code, argv and folder of a program; makes the module ``__main__`` for it."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # the second is multiprocessing's name for it
    if words[0] == "-c":
        return compile(words[1], "<string>", "exec"), ["-c", *words[2:]], ""
    main.__file__ = words[0]
    with open(words[0], "rb") as script:
        return compile(script.read(), words[0], "exec"), words, os.path.dirname(os.path.abspath(words[0]))


if __name__ == "__main__":
    main()
