"""Reads of tensors that the program does not see."""

import sys
from typing import Any


def unobserved() -> Any:
    """A context in which no ``__torch_function__`` of the program's is called: of a tensor's class, or of a mode."""
    return vars(sys.modules["torch"])["_C"].DisableTorchFunction()
