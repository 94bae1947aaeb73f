"""Facts read from a training in its first steps: its optimizers, precision and gradients, and the warnings it got.

Each optimizer is read once, after the first of its updates that is seen. One that begins to step later, or that steps
in turn with others, is found some hundred updates late, or not at all.
"""

import sys
import weakref
from operator import attrgetter
from types import ModuleType
from typing import Any, Callable, Dict, List, Set, Tuple

from ..outside import attempt, variable
from ..torch_compat.unobserved import (
    ByObject,
    attributes,
    class_attribute,
    has_plain_size,
    is_referable,
    is_tensor,
    read,
    unobserved,
)

#: Most optimizers that are described: some programs have one for each parameter.
_OPTIMIZERS_LIMIT = 4
#: Most tensors that are counted, 0.4 us each.
TENSORS_LIMIT = 8192
#: Most parameters whose bytes are counted, with their gradients and state: 4 us each.
SIZED_LIMIT = 2048
_NAME_CHARACTERS = 64

#: For each optimizer a weak reference, and its facts.
_known = ByObject()


def trained_parameters() -> List[Set[int]]:
    """For each optimizer the ids of the parameters that it trains; nothing if there may be more optimizers."""
    live = [reference() for reference, _ in list(_known.values())]
    with unobserved():
        return [
            {id(each) for group in parameter_groups(known) for each in group["params"] if read(each, "requires_grad")}
            for known in (live if len(live) < _OPTIMIZERS_LIMIT else ())
        ]


def is_new(optimizer: Any) -> bool:
    """True if this optimizer is not described yet, and there is room for it."""
    return len(_known) < _OPTIMIZERS_LIMIT and id(optimizer) not in _known


def note(optimizer: Any) -> bool:
    """Describe an optimizer that has just made an update, if it is new; True if it was."""
    if not is_new(optimizer) or not is_referable(optimizer):
        return False
    described: Dict[str, Any] = {}
    _known.attach((weakref.ref(optimizer), described), optimizer)
    attempt(describe, optimizer, described)  # if an unknown kind of optimizer fails, the facts found so far are kept
    return True


def optimizer_facts() -> Dict[str, Any]:
    """The facts of live optimizers: ``{"optimizers": [{"name": "AdamW", "package": "torch", ..., "tensors": 148},
    ...]}``.
    """
    described = [dict(each) for _, each in list(_known.values()) if each]
    return {"optimizers": described} if described else {}


def describe(optimizer: Any, described: Dict[str, Any]) -> None:
    """Fill in one fact after another, so that an error keeps those before it. No device is queried."""
    kind = type(optimizer)
    described["name"] = str(kind.__name__)[:_NAME_CHARACTERS]
    described["package"] = str(kind.__module__).partition(".")[0][:_NAME_CHARACTERS]
    groups = parameter_groups(optimizer)
    if not groups:
        return
    if type(groups[0].get("fused")) is bool:
        described["fused"] = groups[0]["fused"]
    described["groups"] = len(groups)
    parameters = [parameter for group in groups for parameter in group["params"]]
    if len(parameters) > TENSORS_LIMIT:
        return
    with unobserved():
        trained = [parameter for parameter in parameters if read(parameter, "requires_grad")]
        described["tensors"] = len(trained)
        if all(map(has_plain_size, trained)):
            described["elements"] = sum(read(parameter, "numel") for parameter in trained)
        if parameters and len(parameters) <= SIZED_LIMIT:
            count_bytes(optimizer, parameters, described)


def count_bytes(optimizer: Any, parameters: List[Any], described: Dict[str, Any]) -> None:
    """Fill in the bytes of parameters, gradients and state on the parameters' device, if these share one.

    Only shapes and types are read, which C knows: no tensor's values, and no device.
    """
    state: Any = attributes(optimizer).get("state")
    if not issubclass(type(state), dict) or not _are_plain(parameters):
        return
    held = [value for each in list(dict.values(state)) if type(each) is dict for value in each.values()]
    if any(type(each) in (dict, list, tuple) for each in held):  # such as the steps that LBFGS keeps
        return
    gradients = [read(each, "grad") for each in parameters if read(each, "is_leaf")]
    parts = {
        "parameter_bytes": parameters,
        "gradient_bytes": [each for each in gradients if each is not None],
        "state_bytes": [each for each in held if is_tensor(each)],
    }
    device = read(parameters[0], "device")
    if any(read(each, "device") != device for each in parameters) or not all(map(_are_plain, parts.values())):
        return
    described["device"] = device.type
    for name, tensors in parts.items():
        own = [each for each in tensors if read(each, "device") == device]
        described[name] = sum(read(each, "numel") * read(each, "element_size") for each in own)


def _are_plain(tensors: List[Any]) -> bool:
    """True if C alone knows the sizes of these tensors, and no tensor is sparse."""
    kinds = {type(each): each for each in tensors}
    return all(map(has_plain_size, kinds.values())) and not any(read(each, "is_sparse") for each in tensors)


def parameter_groups(optimizer: Any) -> List[Dict[str, Any]]:
    """The groups of parameters that an optimizer holds; none if they are not in torch's form."""
    found = attributes(optimizer).get("param_groups")
    if type(found) is not list or not all(type(each) is dict and type(each.get("params")) is list for each in found):
        return []
    return found


def any_made() -> bool:
    """True if an optimizer was ever made: the first of each class wraps the class's ``step`` and marks it as hooked."""
    base = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    waiting = [] if base is None else type.__subclasses__(base)
    while waiting:
        kind = waiting.pop()
        if attributes(class_attribute(kind, "step")).get("hooked"):
            return True
        waiting.extend(type.__subclasses__(kind))
    return False


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
#: By value of oneDNN's variable: the index of the best instruction set that it still allows.
_UP_TO = {"AVX512_CORE_FP16": 1, "AVX512_CORE_BF16": 1, "AVX512_CORE_VNNI": 2, "AVX512_CORE": 2, "AVX2": 3}


def _torch(name: str) -> Any:
    return attrgetter(name)(sys.modules["torch"])


#: How to read whether products of float32, and convolutions, may round to TF32: from torch 2.9 on, and before. Reading
#: the one raises if the program has set the other; ``none``: nothing is set by the new names.
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
    """Remember the result types of products and convolutions, as the graph behind a forward pass's outputs shows them.

    ::

        with torch.autocast("cuda", torch.bfloat16):   left before backward; nothing else shows it
            loss = criterion(model(batch), target)
        loss.backward()                                float32 of the loss, ..., bfloat16 of an AddmmBackward0

    Products inside a compiled model, a reentrant checkpoint or a function with a backward of its own are not seen, nor
    are those behind the first NODES_LIMIT nodes.
    """
    for node in graph_behind(outputs, NODES_LIMIT):
        if type(node).__name__ in PRODUCTS:
            name = _name(node._input_metadata[0].dtype)
            if name not in _products:
                _products.append(name)


def graph_behind(outputs: Any, limit: int) -> Dict[Any, List[Any]]:
    """The nodes of the graph behind a forward pass's outputs, the near ones first, each with those that lead to it.

    The search ends soon after ``limit`` nodes.
    """
    with unobserved():
        roots = [read(each, "grad_fn") if is_tensor(each) else getattr(each, "node", None) for each in outputs]
    found: Dict[Any, List[Any]] = {node: [] for node in roots if node is not None}
    waiting = list(found)
    for node in waiting:  # the list grows meanwhile
        if len(waiting) >= limit:
            break
        for following in followed_by(node):
            if following not in found:
                found[following] = []
                waiting.append(following)
            found[following].append(node)
    return found


def followed_by(node: Any) -> List[Any]:
    """The nodes to which this one passes gradients on, once for each of its inputs that needs one."""
    return [each for each, _ in node.next_functions if each is not None]


def precision_facts() -> Dict[str, Any]:
    """The precision's facts; TF32 once an optimizer has been seen."""
    found: Dict[str, Any] = {"matmul_dtypes": sorted(_products)} if _products else {}
    if not _types:
        return found
    found["parameter_dtypes"] = list(_types)
    for name, readers in _TF32:
        found.update(next(({name: value} for value in map(attempt, readers) if value is not None), {}))
    return found


def _name(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def vectors() -> Dict[str, Any]:
    """The best instructions for products that this CPU has and oneDNN may use; nothing on other CPUs, or if unknown.

    Source: https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
    """
    cpu = sys.modules.get("torch.cpu")
    limit = (variable("ONEDNN_MAX_CPU_ISA") or variable("DNNL_MAX_CPU_ISA") or "").upper()
    may_be = VECTORS[_UP_TO.get(limit, 0) :]
    if not all(hasattr(cpu, query) for _, query in may_be):  # an older torch
        return {}
    return next(({"vectors": name} for name, query in may_be if getattr(cpu, query)()), {})


#: Most nodes of a graph that are walked, 1 us each.
GRADIENT_NODES_LIMIT = 4096

_gradients: Dict[str, Any] = {}  # empty: they are not counted yet
#: Parameters that no optimizer holds, and how often each had been written to: if one is written later, it is in use.
_versions: List[Tuple[Callable[[], Any], int]] = []


def gradient_facts() -> Dict[str, Any]:
    """``{"unused_gradients": [62, 64, 40, 42]}``: of 62 of 64 tensors, and of 40 of 42 inputs of matrix products."""
    with unobserved():
        known = ((reference(), version) for reference, version in _versions)
        is_written = any(tensor is not None and read(tensor, "_version") != version for tensor, version in known)
    return {} if is_written else dict(_gradients)


def count_gradients(outputs: Any) -> None:
    """Count unused gradients behind the outputs of a backward pass, if the whole graph and all optimizers are known.

    ::

        stem -> block -> head -> loss     an optimizer holds the head's parameters alone: no gradient that the products
                                          of stem and block pass on leads to one that it holds

    An optimizer whose parameters are not in this graph may hold copies of those that are.
    """
    trained = trained_parameters()
    if _gradients or not trained:
        return
    _gradients["unused_gradients"] = None
    graph = graph_behind(outputs, GRADIENT_NODES_LIMIT)
    if len(graph) >= GRADIENT_NODES_LIMIT:
        return
    with unobserved():
        leaves = {node: node.variable for node in graph if type(node).__name__ == "AccumulateGrad"}
        in_graph, taken = set(map(id, leaves.values())), set().union(*trained)
        plain = sys.modules["torch.nn.parameter"].Parameter
        ours = {node for node, leaf in leaves.items() if type(leaf) is not plain or id(leaf) in taken}
        unheld = [leaf for node, leaf in leaves.items() if node not in ours]
        _versions.extend((weakref.ref(leaf), read(leaf, "_version")) for leaf in unheld)
    if not unheld or not any(each and each <= in_graph for each in trained):
        return
    waiting = list(ours)
    while waiting:
        above = [each for each in graph[waiting.pop()] if each not in ours]
        ours.update(above)
        waiting.extend(above)
    inputs = [each for node in graph if type(node).__name__ in PRODUCTS for each in followed_by(node)]
    unused = sum(each not in ours for each in inputs)
    _gradients["unused_gradients"] = [len(unheld), len(leaves), unused, len(inputs)]


#: Parts of the known warnings; others are not read, because they may contain the program's data.
KNOWN_WARNINGS = (
    "Using a target size",
    "Creating a tensor from a list of numpy",
    "To copy construct from a tensor",
    "This DataLoader will create",
    "TensorFloat32 tensor cores",
    "Torch was not compiled with flash attention",
    "RNN module weights are not part of",
    "There is a performance drop because",
    "None of the inputs have requires_grad=True",
    "does not support code generation for complex",
    "DataFrame is highly fragmented",
)
_contents: Any = vars(ModuleType)["__dict__"].__get__

#: The first warning of each kind, by its known part: a module drops its own records once the filters have changed.
_warned: Dict[str, List[Any]] = {}


def warning_facts() -> Dict[str, Any]:
    """``{"warnings": [["Using a target size", "/me/train.py", 40], ...]}``; about 0.3 ms."""
    for module in list(sys.modules.values()):
        held = _contents(module) if issubclass(type(module), ModuleType) else {}
        for warning in list(held.get("__warningregistry__") or ()):
            part = next((part for part in KNOWN_WARNINGS if type(warning) is tuple and part in str(warning[0])), None)
            if part is not None and part not in _warned:
                _warned[part] = [part, str(held.get("__file__") or ""), int(warning[2])]
    return {"warnings": list(_warned.values())} if _warned else {}


def forget() -> None:
    """Start again: in a forked child all facts are its parent's."""
    _known.clear()
    _types.clear()
    _products.clear()
    _warned.clear()
    forget_gradients()


def forget_gradients() -> None:
    """Have gradients counted again: there are new optimizers."""
    _gradients.clear()
    _versions.clear()
