"""The user's Python code that the model runs: loops over elements, NumPy, a matching of boxes in the loss."""

from __future__ import annotations

import re
from collections.abc import Container

from tuimon.code_origin import is_agent_file, is_package_file
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.samples import ThreadSamples
from tuimon.records import Place
from tuimon.session.loop_tree.frame_table import Function
from tuimon.session.loop_tree.order import to_user
from tuimon.session.loop_tree.stacks import StackSample

#: Packages that compute for whoever calls them, on a CPU.
_NUMERIC = re.compile(r"/(?:numpy|scipy|pandas|sklearn|skimage|PIL|cv2|numba)/")
#: Activities for which the text of a line may be taken if no GPU makes anybody wait: ``int(x.item())`` is Python too.
_AT_WORK = ("python", "sync")
#: Makes a tensor out of Python's numbers, one by one.
_FROM_PYTHON = re.compile(r"\btorch\.(?:tensor|as_tensor|\w*Tensor)\(")


def python_function(samples: ThreadSamples) -> HotFunction | None:
    """The user's function in which most samples run Python; its share is of all the samples. None without any."""
    return samples.hottest_where(_runs_python)


def running_python(samples: ThreadSamples, place: Place) -> ThreadSamples:
    """The samples in which the function of a place runs Python."""
    return samples.where(lambda sample: _is_in(sample, place) and _runs_python(sample))


def looping_function(samples: ThreadSamples, training: Container[Function]) -> HotFunction | None:
    """The user's function in which most samples are in a loop of its own, outside modules; None without any.

    ``training``: functions whose loop is the training's. The share is of all the samples, and holds what the loop calls
    of libraries, such as a distribution's ``log_prob``.
    """
    return samples.hottest_where(lambda sample: _loops(sample) and _function_of(sample) not in training)


def looping(samples: ThreadSamples, place: Place) -> ThreadSamples:
    """The samples in which the function of a place is in a loop of its own, outside modules."""
    return samples.where(lambda sample: _is_in(sample, place) and _loops(sample))


def runs_no_operation(sample: StackSample) -> bool:
    """True if the innermost line runs no operation of torch's: such a one has no frame, and looks like Python."""
    leaf = sample.frames[-1]
    return not leaf.user or _makes_tensor(sample) or bool(leaf.packages)


def keeps_no_gradients(sample: StackSample) -> bool:
    """True if a sample is in code without gradients, as far as the source shows."""
    return any(frame.no_grad is not None for frame in sample.frames)


def _is_in(sample: StackSample, place: Place) -> bool:
    return _function_of(sample) == (place.file, place.function)


def _function_of(sample: StackSample) -> Function | None:
    return (sample.place.file, sample.place.function) if sample.place is not None else None


def _runs_python(sample: StackSample) -> bool:
    """True if the user's code is at work, itself or by a package that computes for it; a library's is not."""
    if sample.activity not in _AT_WORK and not _makes_tensor(sample):
        return False
    for frame in reversed(sample.frames):
        if frame.user:
            return True
        if is_agent_file(frame.file) or (is_package_file(frame.file) and not _NUMERIC.search(frame.file)):
            return False
    return False


def _loops(sample: StackSample) -> bool:
    """True if the innermost line of the user's is in a loop of its function, and runs no module."""
    own = to_user(sample.frames)
    return bool(own) and own[-1].loop and all(kind == "none" for kind in sample.kinds[len(own) :])


def _makes_tensor(sample: StackSample) -> bool:
    return any(leaf.user and _FROM_PYTHON.search(leaf.source) is not None for leaf in sample.frames[-1:])
