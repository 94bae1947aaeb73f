"""Reads of the program's objects that run none of its code: no method, property or hook of a class of its own.

What torch's own C code answers for a tensor is read through ``TensorBase``, whatever its class overrides.
"""

import sys
from types import GetSetDescriptorType, WrapperDescriptorType
from typing import Any, Dict

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
    """True if weak references to an object can be made."""
    return bool(_weakref_offset(type(value)))


def is_slot(kind: type, name: str) -> bool:
    """True if a class has this special method from C."""
    return type(class_attribute(kind, name)) is WrapperDescriptorType


def class_attribute(kind: type, name: str) -> Any:
    """An attribute of a class or of one that it inherits from, as it stands there; None without."""
    return next((held[name] for held in map(_class_attributes, _mro(kind)) if name in held), None)


def read(tensor: Any, name: str) -> Any:
    """A property of a tensor, or what a method of it without arguments gives."""
    found = _class_attributes(_torch_c().TensorBase)[name]
    return found.__get__(tensor) if type(found) is GetSetDescriptorType else found(tensor)


def is_tensor(value: Any) -> bool:
    """True if this is a tensor of any class."""
    return issubclass(type(value), vars(sys.modules["torch"])["Tensor"])


def has_plain_size(tensor: Any) -> bool:
    """True if C alone knows shape, layout and place; a class with a ``__torch_dispatch__`` may be called for them."""
    for kind in _mro(type(tensor)):
        dispatch = _class_attributes(kind).get("__torch_dispatch__")
        if dispatch is not None:
            return dispatch is _torch_c()._disabled_torch_dispatch_impl
    return True


def unobserved() -> Any:
    """A context in which no ``__torch_function__`` of the program's is called: of a tensor's class, or of a mode."""
    return _torch_c().DisableTorchFunction()


def undispatched() -> Any:
    """A context in which no ``__torch_dispatch__`` of a mode of the program's is called."""
    return _torch_c()._DisableTorchDispatch()


def _torch_c() -> Any:
    return vars(sys.modules["torch"])["_C"]
