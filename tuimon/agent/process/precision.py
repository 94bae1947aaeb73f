"""The precision a training computes in: the types of its parameters and matrix products, TF32.

And what the CPU multiplies by: without instructions for bfloat16 it converts each number.
"""

import sys
from operator import attrgetter
from typing import Any, Dict, List

from ..outside import attempt, variable
from ..torch_compat.unobserved import is_tensor, read, unobserved
from .optimizer_facts import parameter_groups

#: Most parameters whose type is read.
_PARAMETERS_LIMIT = 4096
#: Most nodes of one graph that are visited, 0.7 us each.
NODES_LIMIT = 256
#: Nodes of matrix products and convolutions, which autocast computes in lower precision.
PRODUCTS = frozenset("%sBackward0" % name for name in ("Addmm", "Mm", "Bmm", "Baddbmm", "Linear", "Convolution"))

#: Instruction sets for products of floats, the best first, and the query for each in ``torch.cpu``.
VECTORS = (
    ("amx", "_is_amx_tile_supported"),
    ("avx512_bf16", "_is_avx512_bf16_supported"),
    ("avx512", "_is_avx512_supported"),
    ("avx2", "_is_avx2_supported"),
)
#: The index of the first one that a value of oneDNN's variable leaves.
_UP_TO = {"AVX512_CORE_FP16": 1, "AVX512_CORE_BF16": 1, "AVX512_CORE_VNNI": 2, "AVX512_CORE": 2, "AVX2": 3}


def _torch(name: str) -> Any:
    return attrgetter(name)(sys.modules["torch"])


#: Whether products of float32 may round to TF32, and convolutions: how each is read from torch 2.9 on, and else. It
#: raises where a program has set the one and the other is read; ``none``: nothing is set by the new names.
_TF32 = (
    (
        "tf32",
        (
            lambda: None if (new := _torch("backends.cuda.matmul.fp32_precision")) == "none" else new == "tf32",
            lambda: _torch("get_float32_matmul_precision")() != "highest",
        ),
    ),
    (
        "cudnn_tf32",
        (
            lambda: _torch("backends.cudnn.conv.fp32_precision") == "tf32",
            lambda: _torch("backends.cudnn.allow_tf32"),
        ),
    ),
)

_types: List[str] = []
_products: List[str] = []


def read_dtypes(optimizer: Any) -> None:
    """Remember the types of the parameters that an optimizer updates."""
    parameters = [each for group in parameter_groups(optimizer) for each in group["params"][:_PARAMETERS_LIMIT]]
    with unobserved():
        _types[:] = sorted({_name(read(each, "dtype")) for each in parameters[:_PARAMETERS_LIMIT]})


def read_products(outputs: Any) -> None:
    """Remember the types that matrix products and convolutions gave, by the graph behind the outputs of a forward pass.

    ::

        with torch.autocast("cuda", torch.bfloat16):   left before backward, where nothing else shows it
            loss = criterion(model(batch), target)
        loss.backward()                                float32 of the loss, ..., bfloat16 of an AddmmBackward0

    Not seen are those inside a compiled model, a reentrant checkpoint or a function with a backward of its own, and
    those behind the first NODES_LIMIT nodes.
    """
    for node in graph_behind(outputs, NODES_LIMIT):
        if type(node).__name__ in PRODUCTS:
            name = _name(node._input_metadata[0].dtype)
            if name not in _products:
                _products.append(name)


def graph_behind(outputs: Any, limit: int) -> Dict[Any, List[Any]]:
    """The nodes of the graph behind the outputs of a forward pass, the near ones first, with those that lead to each.

    It ends soon after so many nodes.
    """
    with unobserved():
        roots = [read(each, "grad_fn") if is_tensor(each) else getattr(each, "node", None) for each in outputs]
    found: Dict[Any, List[Any]] = {node: [] for node in roots if node is not None}
    waiting = list(found)
    for node in waiting:  # it grows
        if len(waiting) >= limit:
            break
        for following in followed_by(node):
            if following not in found:
                found[following] = []
                waiting.append(following)
            found[following].append(node)
    return found


def followed_by(node: Any) -> List[Any]:
    """The nodes to which one passes a gradient on, once for each of its inputs that wants one."""
    return [each for each, _ in node.next_functions if each is not None]


def facts() -> Dict[str, Any]:
    """The precision's facts; TF32 once an optimizer has been seen."""
    found: Dict[str, Any] = {"matmul_dtypes": sorted(_products)} if _products else {}
    if not _types:
        return found
    found["parameter_dtypes"] = list(_types)
    for name, readers in _TF32:
        found.update(next(({name: value} for value in map(attempt, readers) if value is not None), {}))
    return found


def forget() -> None:
    """Begin anew: in a forked child all of it is its parent's."""
    _types.clear()
    _products.clear()


def _name(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def vectors() -> Dict[str, Any]:
    """The best instructions for products that this CPU has and oneDNN may use; nothing on another kind, or unknown.

    Source: https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
    """
    cpu = sys.modules.get("torch.cpu")
    limit = (variable("ONEDNN_MAX_CPU_ISA") or variable("DNNL_MAX_CPU_ISA") or "").upper()
    may_be = VECTORS[_UP_TO.get(limit, 0) :]
    if not all(hasattr(cpu, query) for _, query in may_be):  # an older torch
        return {}
    return next(({"vectors": name} for name, query in may_be if getattr(cpu, query)()), {})
