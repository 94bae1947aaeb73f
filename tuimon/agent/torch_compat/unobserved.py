"""Reads the program's objects without running any of its code: no method, property or hook of its classes.

A tensor is read through ``TensorBase``, torch's own C code, even if its class overrides methods. A dataset's name is
read, and the place at which it makes items and batches.
"""

import sys
import weakref
from functools import partial
from types import FunctionType, GetSetDescriptorType, MethodType, WrapperDescriptorType
from typing import Any, Dict, List, Optional, Union

_mro = type.__dict__["__mro__"].__get__
_class_attributes = type.__dict__["__dict__"].__get__
_weakref_offset = type.__dict__["__weakrefoffset__"].__get__


def attributes(value: Any) -> Dict[str, Any]:
    """The attributes that an object holds; none of one that has no dictionary."""
    for kind in _mro(type(value)):
        held = _class_attributes(kind).get("__dict__")
        if type(held) is GetSetDescriptorType:
            found = held.__get__(value)
            return found if type(found) is dict else {}
    return {}


def is_referable(value: Any) -> bool:
    return bool(_weakref_offset(type(value)))


class ByObject(Dict[int, Any]):
    """Values by the ids of objects, until these are gone.

    Entries are removed in C: in Python code, what a signal handler raises could be lost.
    """

    __slots__ = ("_references",)

    def __init__(self) -> None:
        super().__init__()
        self._references: Dict[int, List[Any]] = {}

    def attach(self, value: Any, to: Any) -> None:
        """Attach a value to an object, if weak references to it can be made."""
        if is_referable(to):
            key = id(to)
            self._references[key] = [weakref.ref(to, partial(table.pop, key)) for table in (self, self._references)]
            self[key] = value

    def clear(self) -> None:
        super().clear()
        self._references.clear()


def is_slot(kind: type, name: str) -> bool:
    """True if a class has this special method from C."""
    return type(class_attribute(kind, name)) is WrapperDescriptorType


def class_attribute(kind: type, name: str) -> Any:
    """A class's own or inherited attribute, without calling descriptors; None if there is none."""
    return next((held[name] for held in map(_class_attributes, _mro(kind)) if name in held), None)


def read(tensor: Any, name: str) -> Any:
    """A property of a tensor, or the result of one of its methods without arguments."""
    found = _class_attributes(_torch_c().TensorBase)[name]
    return found.__get__(tensor) if type(found) is GetSetDescriptorType else found(tensor)


def is_tensor(value: Any) -> bool:
    """True if this is a tensor of any class."""
    return issubclass(type(value), vars(sys.modules["torch"])["Tensor"])


def has_plain_size(tensor: Any) -> bool:
    """True if C alone knows shape, layout and place; a class with a ``__torch_dispatch__`` may be asked for them."""
    for kind in _mro(type(tensor)):
        dispatch = _class_attributes(kind).get("__torch_dispatch__")
        if dispatch is not None:
            return dispatch is _torch_c()._disabled_torch_dispatch_impl
    return True


def unobserved() -> Any:
    """A context in which no ``__torch_function__`` of the program's is called: of a tensor's class, or of a mode."""
    return _torch_c().DisableTorchFunction()


def undispatched() -> Any:
    """A context in which no ``__torch_dispatch__`` of a mode of the program is called."""
    return _torch_c()._DisableTorchDispatch()


def _torch_c() -> Any:
    return vars(sys.modules["torch"])["_C"]


_NAME_CHARACTERS = 80
#: A longer file name is left out: the facts of a loader are one name of the ring, of 1 KiB at most.
_FILE_BYTES = 300


def dataset_name(dataset: Any) -> str:
    """Name of the dataset's class; of a Subset, that of the whole as well."""
    whole = _whole(dataset)
    name = type(whole).__name__
    return ("Subset of %s" % name if whole is not dataset else name)[:_NAME_CHARACTERS]


def item_place(dataset: Any, *, iterable: bool) -> Optional[List[Union[str, int]]]:
    """The file, line and name of the function by which the dataset makes its items; None if unknown."""
    kind = type(_whole(dataset))
    if iterable:
        return defined_at(class_attribute(kind, "__iter__"))
    return defined_at(class_attribute(kind, "__getitems__")) or defined_at(class_attribute(kind, "__getitem__"))


def defined_at(function: Any) -> Optional[List[Union[str, int]]]:
    """The place at which a Python function is defined; also of a method, a partial or a callable object."""
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
    """The dataset; of a Subset, the whole dataset."""
    subset = getattr(sys.modules.get("torch.utils.data.dataset"), "Subset", None)
    return attributes(dataset).get("dataset") if type(dataset) is subset else dataset
