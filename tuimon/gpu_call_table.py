"""Calls that wait for the GPU, and replacements that do not; loads Python's parser, so import it late.

A call waits if it needs a value, or a size that depends on values, which the GPU has yet to compute, or if it copies
memory that is not pinned. Sources: torch's documentation of ``nonzero``, ``normal``, ``repeat_interleave``,
``linalg.inv`` and ``GradScaler.get_scale``; https://github.com/pytorch/pytorch/issues/108968;
https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html.

Absent, because they wait for nothing: ``torch.tensor(x)`` of one tensor, iteration over a tensor, ``random.choice`` of
one, ``scaler.unscale_`` and ``update``. ``x.numpy()`` and ``np.asarray(x)`` fail if the tensor is on a GPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from tuimon.line_syntax import any_tensor, is_to_cpu, module_of, tensor

SyncKind = Literal["read", "branch", "mask", "shape", "copy", "print", "check", "synchronise", "scaler", "clip"]

_DEVICE = re.compile(r"(?i)'cuda|device|\bdev\b|\b(?:local_)?rank\b|\bgpu(?:_id)?\b|^\d+$")


class CallSyntax(NamedTuple):
    """A call, taken apart."""

    node: ast.Call
    key: str  # ``.item`` of a method, ``torch.unique``, ``linalg.inv``, ``math.log``, ``print``
    operand: ast.expr | None  # what a method is called on, or a function's first argument
    others: list[ast.expr]  # further arguments by position
    named: dict[str | None, ast.expr]

    @property
    def arguments(self) -> list[ast.expr]:
        return [*self.node.args, *self.named.values()]

    def has(self, name: str) -> bool:
        """True if an argument of this name is given, and is neither False nor None."""
        value = self.named.get(name)
        return value is not None and not (isinstance(value, ast.Constant) and value.value in (False, None))


def call_syntax(node: ast.Call) -> CallSyntax:
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    first = node.args[0] if node.args else None
    match node.func:
        case ast.Name(id=name):
            return CallSyntax(node, name, first, node.args[1:], named)
        case ast.Attribute(owner, name):
            module = module_of(node.func)
            if module:
                return CallSyntax(node, f"{module}.{name}", first, node.args[1:], named)
            return CallSyntax(node, f".{name}", owner, node.args, named)
    return CallSyntax(node, "", first, node.args[1:], named)


#: The certainty that a call waits if its tensors are on a GPU: True; False if that is uncertain; None if it does not.
_Judge = Callable[[CallSyntax], bool | None]


def _always(_call: CallSyntax) -> bool | None:
    return True


def _of_tensor(call: CallSyntax) -> bool | None:
    return tensor(call.operand)


def _with_tensor(call: CallSyntax) -> bool | None:
    return any_tensor(call.arguments)


def _by_method(call: CallSyntax) -> bool | None:
    """Waits as a method that only tensors and arrays have, and that takes no arguments."""
    return None if call.arguments else _of_array(call)


def _of_array(call: CallSyntax) -> bool | None:
    base = call.operand
    while isinstance(base, ast.Attribute | ast.Subscript):
        base = base.value
    return None if tensor(base) is None and not isinstance(base, ast.Name) else True


def _unless(*names: str, at: int) -> _Judge:
    """Waits unless an argument is given by one of these names, or as number ``at`` after the operand."""
    return lambda call: None if call.named.keys() & set(names) or len(call.others) >= at else True


def _if(name: str) -> _Judge:
    return lambda call: True if call.has(name) else None


def _on(pattern: str, certainty: _Judge) -> _Judge:
    """Judges a method only if the text of its operand matches the pattern."""
    named = re.compile(pattern)
    return lambda call: (
        certainty(call) if call.operand is not None and named.search(ast.unparse(call.operand)) else None
    )


def _to_gpu(call: CallSyntax) -> bool | None:
    """Uncertain (False) for a non-blocking copy, which waits only if the memory is not pinned."""
    device = call.named.get("device", call.others[0] if call.others else None)
    is_device = call.key == ".cuda" or (device is not None and _DEVICE.search(ast.unparse(device)) is not None)
    return not call.has("non_blocking") if is_device and not is_to_cpu(call.node) else None


def _makes_on_gpu(call: CallSyntax) -> bool | None:
    if call.key != ".new_tensor" and (not call.has("device") or is_to_cpu(call.node)):
        return None
    return call.key != "torch.as_tensor" or isinstance(call.operand, ast.Constant | ast.List)


def _draws(call: CallSyntax) -> bool | None:
    """A draw without replacement, or of one number, is checked first: by torch 2.4 on the CPU, by 2.13 on the GPU."""
    replaces = call.has("replacement") or len(call.others) > 1
    number = [*call.others, call.named.get("num_samples")][0]
    return None if replaces and not (isinstance(number, ast.Constant) and number.value == 1) else False


class WaitingCall(NamedTuple):
    """Calls that wait: ``.f`` is a method, ``torch.f`` torch's function, ``*f`` either, or ``f`` by itself."""

    names: str
    kind: SyncKind
    instead: str  # {x}: what is read, {f}: the function's name
    judge: _Judge = _always


#: Replacements that several rows share, and those for conditions and sizes, which are not calls.
KEEP = "add {x} to a tensor and read it every 50 to 100 steps"
PRINT = "add {x} to a tensor and print it every 50 to 100 steps"
_COLLECT = "collect on the GPU, and copy once every 50 to 100 steps, with non_blocking=True into pinned memory"
_STATIC = "a mask of the same size, or torch.nonzero_static({x}, size=n) of a recent torch"
_EX = "torch.linalg.{f}_ex, which leaves the check for errors on the GPU"
BRANCH = "torch.where instead of the branch, or check every 100 steps"
FIXED = "a fixed size and a mask: the size then does not depend on values"

#: The first row whose judge finds that a call waits applies to it.
ROWS = (
    # values
    WaitingCall(".item", "read", KEEP, _by_method),
    WaitingCall("float int bool complex", "read", KEEP, _of_tensor),
    WaitingCall(".tolist .cpu", "read", _COLLECT, _by_method),
    WaitingCall(
        ".to",
        "read",
        _COLLECT,
        lambda call: _of_array(call) if is_to_cpu(call.node) and not call.has("non_blocking") else None,
    ),
    WaitingCall(".numpy", "read", _COLLECT, _if("force")),
    WaitingCall(
        "torch.save", "read", "copy it to the CPU with non_blocking=True, and save that some steps later", _with_tensor
    ),
    WaitingCall("math.*", "read", "torch.{f}, whose result stays on the GPU", _with_tensor),
    WaitingCall(
        "torch.tensor torch.as_tensor",
        "read",
        "torch.stack, whose result stays on the GPU",
        lambda call: tensor(call.operand) if isinstance(call.operand, ast.List | ast.Tuple | ast.ListComp) else None,
    ),
    WaitingCall("max min", "branch", "torch.{f}imum", lambda call: _with_tensor(call) if call.others else None),
    WaitingCall("any all", "branch", "torch.stack(...).{f}(), and check that every 100 steps", _of_tensor),
    WaitingCall("torch.equal .equal", "branch", "({x} == other).all(), and check that every 100 steps"),
    WaitingCall("*allclose", "branch", "torch.isclose(...).all(), and check that every 100 steps"),
    WaitingCall("*is_nonzero", "branch", BRANCH),
    # text
    WaitingCall("print str repr format", "print", PRINT, _with_tensor),
    WaitingCall(".format .add_scalar .add_scalars .set_postfix", "print", PRINT, _with_tensor),
    WaitingCall(
        ".debug .info .warning .error .critical .log .log_metrics .set_description .write",
        "print",
        PRINT,
        _on(r"(?i)log|wandb|writer|mlflow|bar\b|tqdm|progress", _with_tensor),
    ),
    # sizes
    WaitingCall("*nonzero *argwhere", "shape", _STATIC),
    WaitingCall("torch.where", "shape", _STATIC, _unless("input", "other", at=1)),
    WaitingCall("*masked_select", "shape", "torch.where(mask, {x}, 0): the size then does not depend on values"),
    # bincount reads the least and the largest value, whatever minlength is
    WaitingCall(
        "torch.unique .unique torch.unique_consecutive .unique_consecutive torch.bincount .bincount",
        "shape",
        "with n classes at most, torch.zeros(n, device=...).scatter_add_(0, {x}, ones)",
    ),
    WaitingCall(
        "*repeat_interleave",
        "shape",
        "output_size=n, the sum of the repeats",
        lambda call: (
            None if call.has("output_size") else tensor([*call.others, call.named.get("repeats", call.operand)][0])
        ),
    ),
    WaitingCall("*one_hot", "shape", "num_classes=n", _unless("num_classes", at=1)),
    WaitingCall("*histc", "shape", "min=, max= as numbers, so that it reads neither", _unless("min", "max", at=2)),
    WaitingCall(".to_sparse .coalesce torch.combinations", "shape", FIXED),
    WaitingCall("range", "shape", FIXED, _with_tensor),
    # plain sizes are the rule, and the work with them takes time as well
    WaitingCall(
        "torch.arange torch.zeros torch.ones torch.empty torch.full",
        "shape",
        FIXED,
        lambda call: True if any_tensor(call.arguments) else None,
    ),
    # copies
    WaitingCall(
        ".to .cuda",
        "copy",
        "pin the memory once (pin_memory=True in the DataLoader, or the tensor that batches are cut from) and"
        " non_blocking=True",
        _to_gpu,
    ),
    WaitingCall(
        "torch.tensor torch.as_tensor .new_tensor",
        "copy",
        "make it once before the loop, or with torch.full if it is one number",
        _makes_on_gpu,
    ),
    # checks
    WaitingCall("linalg.cholesky linalg.inv linalg.ldl_factor linalg.lu_factor linalg.solve", "check", _EX),
    WaitingCall("torch.inverse", "check", "torch.linalg.inv_ex, which leaves the check for errors on the GPU"),
    WaitingCall(
        "linalg.cholesky_ex linalg.inv_ex linalg.ldl_factor_ex linalg.lu_factor_ex linalg.solve_ex",
        "check",
        "check_errors=False",
        _if("check_errors"),
    ),
    WaitingCall(
        "linalg.cond linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.lstsq linalg.matrix_rank linalg.pinv"
        " linalg.svd linalg.svdvals torch.pinverse torch.svd",
        "check",
        "keep its result for several steps, or torch.linalg.cholesky_ex or solve_ex if one of them is enough",
    ),
    WaitingCall(
        "*Bernoulli *Beta *Categorical *Dirichlet *Gamma *Independent *MultivariateNormal *Normal *OneHotCategorical",
        "check",
        "validate_args=False",
        lambda call: True if call.has("validate_args") or "validate_args" not in call.named else None,
    ),
    WaitingCall(".log_prob", "check", "validate_args=False where {x} is made", lambda call: False),
    WaitingCall(".sample", "check", "rsample().detach(), which checks nothing", _on(r"Normal\(", _always)),
    WaitingCall(
        "torch.normal",
        "check",
        "mean + std * torch.randn_like(std), which checks nothing",
        lambda call: any_tensor(call.others),
    ),
    WaitingCall(
        "*multinomial",
        "check",
        "to draw one, ({x} / torch.empty_like({x}).exponential_()).argmax(-1), which checks nothing",
        _draws,
    ),
    WaitingCall(
        "*clip_grad_norm_",
        "clip",
        "error_if_nonfinite=False, and check the norm that it returns every 100 steps",
        _if("error_if_nonfinite"),
    ),
    # not if the optimizer looks for infinities itself: fused=True
    WaitingCall(
        ".step",
        "scaler",
        "fused=True in the optimizer, which then checks on the GPU, or autocast to bfloat16, which needs no scaler",
        _on("(?i)scaler", lambda call: False),
    ),
    WaitingCall(".get_scale", "scaler", "read the scale every 50 to 100 steps"),
    # explicit waits
    WaitingCall(
        ".synchronize", "synchronise", "{x}.wait(), which makes the GPU wait and not the CPU", _on("(?i)event", _always)
    ),
    WaitingCall(
        ".synchronize",
        "synchronise",
        "torch.cuda.current_stream().wait_stream({x}), which makes the GPU wait and not the CPU",
        _on("(?i)stream", _always),
    ),
    WaitingCall(
        "*synchronize",
        "synchronise",
        "leave it out, except where time is measured",
        lambda call: None if ".cpu." in ast.unparse(call.node.func) else True,
    ),
)

#: The rows by the ``CallSyntax.key`` of their calls.
BY_KEY: dict[str, list[WaitingCall]] = {}
for _row in ROWS:
    for _name in _row.names.split():
        for _key in (f".{_name[1:]}", f"torch.{_name[1:]}", _name[1:]) if _name.startswith("*") else (_name,):
            BY_KEY.setdefault(_key, []).append(_row)

#: Calls that wait wherever they stand, without their arguments: ``.item``.
UNMISTAKABLE = {key: rows[0] for key, rows in BY_KEY.items() if "." in key and rows[0].judge in (_always, _by_method)}
