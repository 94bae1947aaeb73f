"""The owner of a file's code, by its path: the user, a library, torch, or our own hooks.

torch is recognised by the end of its paths, whether it is installed, a checkout, or built in place:
``/venv/lib/python3.11/site-packages/torch/optim/adam.py`` and ``/src/pytorch/torch/optim/adam.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from tuimon.text import CodeLine

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Code within a function that has a frame of its own; comprehensions have one before Python 3.12.
WITHIN = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"})
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/"
    r"|/lib(?:64)?/(?:python|pypy)\d[\d.]*t?/"  # the standard library of whatever interpreter
    r"|/python\d+\.zip/"
    r"|/[\w.]+_(?:propagate|edge_updater)_\w{8}\.py$"  # PyTorch Geometric writes it for each class of convolution
    # torch built in place: only what a user's own folder named "torch" is unlikely to hold, unlike torch/distributed/
    r"|/torch/(?:nn/modules|optim|utils/data|autograd)/|/torch/(?:_tensor|serialization|nn/functional|utils/checkpoint)\.py$"
)
_TORCH_FILE = re.compile(r"(?:^|/)torch/(?!utils/data/)")
#: The folder above an environment's packages and commands.
_ENVIRONMENT = re.compile(r"(.*)/lib(?:64)?/(?:python\d[\d.]*t?/)?(?:site|dist)-packages/")
_PACKAGE = re.compile(r"-packages/([^/]+?)(?:\.py)?(?:/|$)")
#: At a prompt of IPython or Python, or below ``%%time``.
_TYPED_IN = ("<ipython-input-", "<python-input-", "<stdin>", "<timed exec>", "<timed eval>")


L = TypeVar("L", bound=CodeLine)


class FrameTest(Protocol):
    """True if a frame is of some kind, by its file and its bare function name (``step``, not ``Adam.step``)."""

    def __call__(self, file: str, function: str = "") -> bool: ...


def frame_test(*kinds: str | tuple[str, str]) -> FrameTest:
    r"""A test for frames of any of these kinds: a pattern for the file, or a pair of patterns, for the file and the
    whole function name::

        is_graph_replay = frame_test(r"torch/_inductor/cudagraph_trees\.py$", (r"torch/cuda/graphs\.py$", "replay"))
    """
    pairs = [(kind, r"[\s\S]*") if isinstance(kind, str) else kind for kind in kinds]
    tests = [(re.compile(function).fullmatch, re.compile(file).search) for file, function in pairs]

    def is_one(file: str, function: str = "") -> bool:
        for is_function, in_file in tests:  # noqa: SIM110  (any() takes twice as long)
            if is_function(function) and in_file(file):
                return True
        return False

    return is_one


#: The files of our hooks in the training: ``/…/site-packages/tuimon/agent/install.py``. Early logs name their folder
#: ``target``.
AGENT_FILE = "tuimon/(?:agent|target)/"
is_agent_file = frame_test(AGENT_FILE)
#: A file that torch.compile has generated: its name is a hash, and its folder's name is the beginning of that hash.
is_generated = frame_test(r"/torchinductor_|/(\w\w)/c\1\w{40,}\.py$")
#: Python's import system: ``<frozen importlib._bootstrap>``.
is_import_system = frame_test("^<frozen importlib")


def is_user_file(file: str, programs: Collection[str] = ()) -> bool:
    """True if a file is outside the standard library, installed packages and tuimon: ``/home/me/train.py``.

    A file of one of the ``programs`` counts, too: installed packages that are themselves the program, as under ``python
    -m nice.train``.
    """
    if programs and package_of(file) in programs:
        return True
    if not file or file.startswith("<"):
        return file.startswith(_TYPED_IN)
    if file.startswith(_OWN_FOLDER) or is_agent_file(file):
        return False
    return _LIBRARY.search(file) is None and not is_generated(file)


def is_package_file(file: str) -> bool:
    """True if a file belongs to an installed package, torch included: ``/…/dist-packages/PIL/Image.py``."""
    return "-packages/" in file


def package_of(file: str) -> str | None:
    """The installed package that a file belongs to: of ``/…/dist-packages/PIL/Image.py`` it is ``PIL``."""
    found = _PACKAGE.search(file)
    return found[1] if found is not None else None


def is_installed_script(file: str, files: Iterable[str]) -> bool:
    """True if a file is a command of the environment that one of these files is installed in: ``/venv/bin/nice``.

    Commands lie near the folder of the packages: ``/venv/lib/python3.11/site-packages``, ``/home/me/.local/lib/...``.
    """
    folder = os.path.dirname(file)
    roots = {found[1] for each in files if (found := _ENVIRONMENT.match(each)) is not None}
    return any(folder == f"{root}/bin" for root in roots)


def is_library_file(file: str) -> bool:
    """True if a file belongs to an installed package, but not to torch, its DataLoader or our hooks."""
    return package_of(file) not in (None, "torch") and not is_agent_file(file)


def innermost_package(stack: Sequence[CodeLine]) -> int:
    """The index of the innermost frame of an installed package on a stack, root first; the last one if there is none.

    For ``train.py``, ``/…/site-packages/PIL/Image.py``, ``threading.py`` it is 1. A frame of our hooks counts only if
    there is no other. A comprehension counts as its function, as it does in Python 3.12 and later.
    """
    others = [i for i, frame in enumerate(stack) if not is_agent_file(frame.file)]
    packages = [i for i in others if is_package_file(stack[i].file)]
    return _enclosing(stack, (packages or others or [len(stack) - 1])[-1])


def innermost_work(stack: Sequence[L]) -> L:
    """The frame that stands for a stack without user code: the innermost of a package other than torch."""
    library = next((frame for frame in reversed(stack) if is_library_file(frame.file)), None)
    return library or stack[innermost_package(stack)]


def function_at(stack: Sequence[CodeLine]) -> str:
    """The function of the innermost frame; a comprehension or lambda counts as the function around it."""
    return stack[_enclosing(stack, len(stack) - 1)].function


def _enclosing(stack: Sequence[CodeLine], depth: int) -> int:
    """The index of the function around a comprehension or lambda at ``depth``; for any other frame ``depth`` itself."""
    while depth > 0 and stack[depth].function in WITHIN and stack[depth - 1].file == stack[depth].file:
        depth -= 1
    return depth


def is_torch(file: str) -> bool:
    """True if a file belongs to torch, except its data loading: ``torch/functional.py``.

    Other packages may have a folder of that name for code built on torch: ``gluonts/torch/model/estimator.py``.
    """
    return _TORCH_FILE.search(file) is not None and package_of(file) in (None, "torch")
