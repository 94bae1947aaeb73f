"""What is known of a data set without running its code: its name, and where its items and batches are made."""

import sys
from functools import partial
from types import FunctionType, MethodType
from typing import Any, List, Optional, Union

from ..torch_compat.unobserved import attributes, class_attribute

_NAME_CHARACTERS = 80
#: A longer file name is left out: the facts of a loader are one name of the ring, of 1 KiB at most.
_FILE_BYTES = 300


def dataset_name(dataset: Any) -> str:
    """Name of the data set's class; of a Subset, that of the whole as well."""
    whole = _whole(dataset)
    name = type(whole).__name__
    return ("Subset of %s" % name if whole is not dataset else name)[:_NAME_CHARACTERS]


def item_place(dataset: Any, *, iterable: bool) -> Optional[List[Union[str, int]]]:
    """Where the data set makes its items: file, line and name of the function that torch calls; None if unknown."""
    kind = type(_whole(dataset))
    if iterable:
        return place_of(class_attribute(kind, "__iter__"))
    return place_of(class_attribute(kind, "__getitems__")) or place_of(class_attribute(kind, "__getitem__"))


def place_of(function: Any) -> Optional[List[Union[str, int]]]:
    """Where a function of Python is defined, a method, a partial or an object that is called like one."""
    if type(function) is MethodType:
        function = function.__func__
    if type(function) is partial:
        function = function.func
    if type(function) is not FunctionType:
        function = class_attribute(type(function), "__call__")
    if type(function) is not FunctionType:
        return None
    code = function.__code__
    file, name = code.co_filename, code.co_name[:_NAME_CHARACTERS]
    return [file, code.co_firstlineno, name] if len(file.encode("utf-8", "replace")) <= _FILE_BYTES else None


def _whole(dataset: Any) -> Any:
    """The data set, or what it is a Subset of."""
    subset = getattr(sys.modules.get("torch.utils.data.dataset"), "Subset", None)
    return attributes(dataset).get("dataset") if type(dataset) is subset else dataset
