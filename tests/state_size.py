"""How much memory an object holds: for tests that state does not grow with a run."""

import gc
import sys
import types
from collections import Counter

#: Of the program, not of the state.
_PROGRAM = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.CodeType,
)


def size_of(root: object) -> int:
    """Bytes of an object and of everything it holds; what is held twice counts once."""
    return sizes_by_type(root).total()


def sizes_by_type(root: object) -> Counter[str]:
    """Bytes of an object and of everything it holds, by the type that takes them: the difference shows what grew."""
    sizes = Counter[str]()
    seen, found = set[int](), [root]
    while found:
        value = found.pop()
        if id(value) not in seen and not isinstance(value, _PROGRAM):
            seen.add(id(value))
            sizes[type(value).__qualname__] += sys.getsizeof(value)
            found += gc.get_referents(value)
            if not gc.is_tracked(value):  # a struct that the collector need not know
                found += [getattr(value, name) for name in getattr(value, "__struct_fields__", ())]
    return sizes
