"""The user's Python code that the model runs: loops over elements, NumPy, a matching of boxes in the loss."""

from __future__ import annotations

import re
from collections.abc import Container

from tuimon.code_origin import is_agent_file, is_package_file
from tuimon.records import Place
from tuimon.session.rows import HotLine
from tuimon.session.stacks.frames import Function
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node, to_user

#: Packages that compute for whoever calls them, on a CPU.
_NUMERIC = re.compile(r"/(?:numpy|scipy|pandas|sklearn|skimage|PIL|cv2|numba)/")
#: Activities for which the text of a line may be taken if no GPU makes anybody wait: ``int(x.item())`` is Python too.
_AT_WORK = ("python", "sync")
#: Makes a tensor out of Python's numbers, one by one.
_FROM_PYTHON = re.compile(r"\btorch\.(?:tensor|as_tensor|\w*Tensor)\(")


def python_function(samples: Samples) -> HotLine | None:
    """The user's function in which most samples run Python; its share is of all the samples. None without any."""
    return samples.hottest(_runs_python)


def running_python(samples: Samples, place: Place) -> Samples:
    """The samples in which the function of a place runs Python."""
    return samples.where(lambda node: _is_in(node, place) and _runs_python(node))


def looping_function(samples: Samples, training: Container[Function]) -> HotLine | None:
    """The user's function in which most samples are in a loop of its own, outside modules; None without any.

    ``training``: functions whose loop is the training's. The share is of all the samples, and holds what the loop calls
    of libraries, such as a distribution's ``log_prob``.
    """
    return samples.hottest(lambda node: _loops(node) and node.function not in training)


def looping(samples: Samples, place: Place) -> Samples:
    """The samples in which the function of a place is in a loop of its own, outside modules."""
    return samples.where(lambda node: _is_in(node, place) and _loops(node))


def runs_no_operation(node: Node) -> bool:
    """True if the innermost line runs no operation of torch's: such a one has no frame, and looks like Python."""
    leaf = node.frame
    return not leaf.user or _makes_tensor(node) or bool(leaf.packages)


def keeps_no_gradients(node: Node) -> bool:
    """True if a sample is in code without gradients, as far as the source shows."""
    return any(frame.no_grad is not None for frame in node.frames)


def _is_in(node: Node, place: Place) -> bool:
    return node.function == (place.file, place.function)


def _runs_python(node: Node) -> bool:
    """True if the user's code is at work, itself or by a package that computes for it; a library's is not."""
    if node.activity not in _AT_WORK and not _makes_tensor(node):
        return False
    for frame in reversed(node.frames):
        if frame.user:
            return True
        if is_agent_file(frame.file) or (is_package_file(frame.file) and not _NUMERIC.search(frame.file)):
            return False
    return False


def _loops(node: Node) -> bool:
    """True if the innermost line of the user's is in a loop of its function, and runs no module."""
    own = to_user(node.frames)
    return bool(own) and own[-1].loop and all(kind == "none" for kind in node.kinds[len(own) :])


def _makes_tensor(node: Node) -> bool:
    return node.frame.user and _FROM_PYTHON.search(node.frame.source) is not None
