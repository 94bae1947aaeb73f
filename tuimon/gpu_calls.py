"""Finds the calls on a line that wait for the GPU, and replacements; loads Python's parser, so import it late.

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
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from tuimon.bounds import MANY_HELD
from tuimon.line_syntax import (
    any_tensor,
    is_made_on_cpu,
    is_to_cpu,
    mask_certainty,
    module_of,
    parsed_line,
    parsed_part,
    parts,
    tensor_certainty,
)

SyncKind = Literal["read", "branch", "mask", "shape", "copy", "print", "check", "synchronise", "scaler", "clip"]

_DEVICE = re.compile(r"(?i)'cuda|device|\bdev\b|\b(?:local_)?rank\b|\bgpu(?:_id)?\b|^\d+$")


class CallSyntax(NamedTuple):
    """A call, taken apart."""

    node: ast.Call
    key: str  # ``.item`` of a method, ``torch.unique``, ``linalg.inv``, ``math.log``, ``print``
    operand: ast.expr | None  # the object of a method, or a function's first argument
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


def _on_tensor(call: CallSyntax) -> bool | None:
    return tensor_certainty(call.operand)


def _with_tensor(call: CallSyntax) -> bool | None:
    return any_tensor(call.arguments)


def _by_method(call: CallSyntax) -> bool | None:
    """Waits as a method that only tensors and arrays have, and that takes no arguments."""
    return None if call.arguments else _on_array(call)


def _on_array(call: CallSyntax) -> bool | None:
    base = call.operand
    while isinstance(base, ast.Attribute | ast.Subscript):
        base = base.value
    return None if tensor_certainty(base) is None and not isinstance(base, ast.Name) else True


def _unless(*names: str, at: int) -> _Judge:
    """Waits unless an argument is given by one of these names, or as number ``at`` after the operand."""
    return lambda call: None if call.named.keys() & set(names) or len(call.others) >= at else True


def _if_given(name: str) -> _Judge:
    return lambda call: True if call.has(name) else None


def _if_operand(pattern: str, certainty: _Judge) -> _Judge:
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
CALL_ROWS = (
    # values
    WaitingCall(".item", "read", KEEP, _by_method),
    WaitingCall("float int bool complex", "read", KEEP, _on_tensor),
    WaitingCall(".tolist .cpu", "read", _COLLECT, _by_method),
    WaitingCall(
        ".to",
        "read",
        _COLLECT,
        lambda call: _on_array(call) if is_to_cpu(call.node) and not call.has("non_blocking") else None,
    ),
    WaitingCall(".numpy", "read", _COLLECT, _if_given("force")),
    WaitingCall(
        "torch.save", "read", "copy it to the CPU with non_blocking=True, and save that some steps later", _with_tensor
    ),
    WaitingCall("math.*", "read", "torch.{f}, whose result stays on the GPU", _with_tensor),
    WaitingCall(
        "torch.tensor torch.as_tensor",
        "read",
        "torch.stack, whose result stays on the GPU",
        lambda call: (
            tensor_certainty(call.operand) if isinstance(call.operand, ast.List | ast.Tuple | ast.ListComp) else None
        ),
    ),
    WaitingCall("max min", "branch", "torch.{f}imum", lambda call: _with_tensor(call) if call.others else None),
    WaitingCall("any all", "branch", "torch.stack(...).{f}(), and check that every 100 steps", _on_tensor),
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
        _if_operand(r"(?i)log|wandb|writer|mlflow|bar\b|tqdm|progress", _with_tensor),
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
            None
            if call.has("output_size")
            else tensor_certainty([*call.others, call.named.get("repeats", call.operand)][0])
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
        _if_given("check_errors"),
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
    WaitingCall(".sample", "check", "rsample().detach(), which checks nothing", _if_operand(r"Normal\(", _always)),
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
        _if_given("error_if_nonfinite"),
    ),
    # not if the optimizer looks for infinities itself: fused=True
    WaitingCall(
        ".step",
        "scaler",
        "fused=True in the optimizer, which then checks on the GPU, or autocast to bfloat16, which needs no scaler",
        _if_operand("(?i)scaler", lambda call: False),
    ),
    WaitingCall(".get_scale", "scaler", "read the scale every 50 to 100 steps"),
    # explicit waits
    WaitingCall(
        ".synchronize",
        "synchronise",
        "{x}.wait(), which makes the GPU wait and not the CPU",
        _if_operand("(?i)event", _always),
    ),
    WaitingCall(
        ".synchronize",
        "synchronise",
        "torch.cuda.current_stream().wait_stream({x}), which makes the GPU wait and not the CPU",
        _if_operand("(?i)stream", _always),
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
for _row in CALL_ROWS:
    for _name in _row.names.split():
        for _key in (f".{_name[1:]}", f"torch.{_name[1:]}", _name[1:]) if _name.startswith("*") else (_name,):
            BY_KEY.setdefault(_key, []).append(_row)

#: Calls that wait wherever they stand, without their arguments: ``.item``.
UNMISTAKABLE = {key: rows[0] for key, rows in BY_KEY.items() if "." in key and rows[0].judge in (_always, _by_method)}


#: Most characters of a call, and of an operand in its replacement.
_WHAT_CHARS = 60
_OPERAND_CHARS = 40

_INDEXERS = frozenset({"at", "iloc", "loc"})
#: One position or size, which indexing reads.
_ONE_NUMBER = re.compile(r"\.(?:argmax|argmin|max|min|sum)\(\)$|^torch\.arg(?:max|min)\([^,]*\)$")
#: Values that keep masked elements from counting in a reduction.
_NEUTRAL = {"sum": "0", "mean": "0", "max": "-torch.inf", "amax": "-torch.inf", "min": "torch.inf", "amin": "torch.inf"}
_IGNORING = re.compile(r"cross_entropy$|nll_loss$")
_LOSS = re.compile(r"(?i)loss|criterion|entropy")
_COMPOUND = ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.UnaryOp

_ELSEWHERE = re.compile(r"\b_\b")  # as ``parsed_part`` fills in
_COMMENT_OR_STRING = re.compile(r"""#.*|"[^"]*"?|'[^']*'?""")
_UNMISTAKABLE = re.compile(rf"((?:\w[\w.]*)?)({'|'.join(map(re.escape, UNMISTAKABLE))})\(")

#: The nodes around one, outermost first.
_Path = tuple[ast.AST, ...]


class SyncCall(NamedTuple):
    """A call, an index or a condition that waits for the GPU."""

    kind: SyncKind
    what: str  # as in the source: "errors[mask]", "loss.item()", "x.abs().max() > 1e4"
    is_certain: bool  # waits wherever its tensors are on a GPU; False: fits plain values as well, which take no time
    instead: str  # an alternative that does not wait, as one clause


class _Wait(NamedTuple):
    kind: SyncKind
    node: ast.AST
    is_certain: bool
    instead: str


def sync_calls(source: str) -> tuple[SyncCall, ...]:
    """The waits for the GPU on a user line, which may be a part of a statement.

    Certain ones come first, in the order of execution: the first waits for all that is queued, later ones for little.
    """
    return _sync_calls(source[:500])


@lru_cache(MANY_HELD)
def _sync_calls(source: str) -> tuple[SyncCall, ...]:
    try:
        parsed = parsed_part(source)
        found = [*(_waits_in_text(source) if parsed is None else _waits_in_tree(*parsed))]
    except (RecursionError, ValueError):  # ast.unparse raises both
        found = [*_waits_in_text(source)]
    by_text: dict[str, SyncCall] = {}
    for call in found:
        by_text.setdefault(call.what, call)
    return tuple(sorted(by_text.values(), key=lambda call: not call.is_certain))


def _waits_in_text(source: str) -> Iterator[SyncCall]:
    """Calls in a text that is not Python, by their names."""
    for owner, key in _UNMISTAKABLE.findall(_COMMENT_OR_STRING.sub("''", source)):
        if not owner.startswith(("np.", "numpy.")):
            row, x = UNMISTAKABLE[key], owner if key.startswith(".") and owner else "x"
            instead = row.instead.format(x=f"{x}.detach()" if row.instead == KEEP else x, f=key.rpartition(".")[2])
            yield SyncCall(row.kind, _cut(f"{owner}{key}()"), True, instead)


def _waits_in_tree(tree: ast.Module, text: str) -> Iterator[SyncCall]:
    for wait in _waits_in_order(tree, ()):
        plain, written = ast.unparse(wait.node), ast.get_source_segment(text, wait.node) or ""
        is_it = (again := parsed_line(written)) is not None and ast.unparse(again) == plain
        what = written if is_it else plain  # before Python 3.12, positions in f-strings are unreliable
        yield SyncCall(wait.kind, _cut(what.removeprefix("_ ")), wait.is_certain, wait.instead)


def _cut(text: str) -> str:
    return text if len(text) <= _WHAT_CHARS else text[: _WHAT_CHARS - 1] + "…"


def _waits_in_order(node: ast.AST, path: _Path) -> Iterator[_Wait]:
    inside = (*path, node)
    for child in _children(node):
        yield from _waits_in_order(child, inside)
    match node:
        case ast.Call():
            yield from _waits_of_call(node, path)
        case ast.Subscript():
            yield from _waits_of_subscript(node, path)
        case ast.JoinedStr(values) if not (isinstance(path[-1], ast.FormattedValue) and path[-1].format_spec is node):
            yield from _waits_of_text(node, [value.value for value in values if isinstance(value, ast.FormattedValue)])
        case ast.BinOp(ast.Constant(str()), ast.Mod(), value):
            yield from _waits_of_text(node, [value])
    if _is_tested(node, path) and not isinstance(node, ast.Attribute | ast.BoolOp):
        certain = tensor_certainty(node, called=None)
        if certain is not None:
            yield _Wait("branch", node, certain, _without_branch(node, path))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Assign(targets, value):
            yield from (value, *targets)
        case ast.For(target, iterated, body):
            yield from (iterated, target, *body)
        case (
            ast.ListComp(element, generators) | ast.SetComp(element, generators) | ast.GeneratorExp(element, generators)
        ):
            yield from (*generators, element)
        case ast.DictComp(key, value, generators):
            yield from (*generators, key, value)
        case ast.comprehension(target, iterated, conditions):
            yield from (iterated, target, *conditions)
        case _:
            yield from ast.iter_child_nodes(node)


def _is_tested(node: ast.AST, path: _Path) -> bool:
    """True if Python tests the truth of an expression."""
    match path[-1] if path else None:
        case ast.If(test) | ast.While(test) | ast.IfExp(test) | ast.Assert(test):
            return node is test
        case ast.comprehension(_, _, conditions):
            return node in conditions
        case ast.UnaryOp(ast.Not()):
            return True
        case ast.BoolOp(_, values) as whole:
            return node is not values[-1] or _is_tested(whole, path[:-1])
    return False


def _without_branch(node: ast.AST, path: _Path) -> str:
    for outer in reversed(path):
        match outer:
            case ast.Assert():
                isnt = "~" if isinstance(path[-1], ast.UnaryOp) else ""
                return f"torch._assert_async({isnt}{_operand(node, 'condition')}), which checks on the GPU"
            case ast.While():
                return "a fixed number of steps with torch.where, or check every 100 steps"
            case ast.If() | ast.IfExp():
                break
    return BRANCH


def _waits_of_call(node: ast.Call, path: _Path) -> Iterator[_Wait]:
    call = call_syntax(node)
    group, _, name = call.key.rpartition(".")
    for row in BY_KEY.get(call.key, BY_KEY.get(f"{group}.*", [])):
        certain = row.judge(call)
        if certain is not None:
            certain = certain and (row.kind == "copy" or not is_made_on_cpu(call.operand))
            yield _Wait(row.kind, node, certain, _without_call(row, call, name, path))
            return


def _without_call(row: WaitingCall, call: CallSyntax, name: str, path: _Path) -> str:
    """The row's replacement, or another one if the value decides what runs, or a size."""
    if row.kind == "read":
        tested = next((at for at, node in enumerate((*path, call.node)) if _is_tested(node, path[:at])), None)
        if tested is not None:
            read = call.operand if tested == len(path) and call.operand is not None else ast.Name("condition")
            return _without_branch(read, path)
        calls = (node.func for node in path if isinstance(node, ast.Call))
        if any(isinstance(node, ast.Slice) for node in path) or "range" in (getattr(each, "id", "") for each in calls):
            return FIXED
    if row.instead == PRINT:
        return PRINT.format(x=_detached(next(node for node in call.arguments if tensor_certainty(node) is not None)))
    return row.instead.format(x=_detached(call.operand) if row.instead == KEEP else _operand(call.operand), f=name)


def _waits_of_text(node: ast.expr, values: list[ast.expr]) -> Iterator[_Wait]:
    certain = any_tensor(values)
    if certain is not None:
        first = next(value for value in values if tensor_certainty(value) is not None)
        yield _Wait("print", node, certain, PRINT.format(x=_detached(first)))


def _waits_of_subscript(node: ast.Subscript, path: _Path) -> Iterator[_Wait]:
    base, indices = node.value, parts(node.slice)
    if (tensor_certainty(base) is None and not isinstance(base, ast.Name)) or getattr(base, "attr", "") in _INDEXERS:
        return
    masks = [(certain, index) for index in indices if (certain := mask_certainty(index)) is not None]
    if masks:
        certain, index = max(masks, key=lambda pair: pair[0])
        yield from _waits_of_mask(node, index, certain, path)
        return
    for index in indices:
        if isinstance(index, ast.Slice):
            size = any_tensor(filter(None, (index.lower, index.upper, index.step)), called=None)
            if size is not None:
                yield _Wait("shape", node, size, FIXED)
        elif tensor_certainty(index) and _ONE_NUMBER.search(text := ast.unparse(index)):
            yield _Wait("read", node, True, f"{text}.view(1) as the index, which the GPU looks up")


def _waits_of_mask(node: ast.Subscript, index: ast.expr, certain: bool, path: _Path) -> Iterator[_Wait]:
    x, m, statement = _short(node.value), _short(index, "mask"), path[-1]
    match statement:
        case ast.AugAssign(target, operator, value) if target is node:
            new = _short(ast.BinOp(node.value, operator, _unmasked(value)), "values")
            yield _Wait("mask", statement, certain, f"{x} = torch.where({m}, {new}, {x})")
        case ast.Assign(targets, value) if node in targets:
            known = tensor_certainty(value)
            if known is None and any_tensor(part for part in parts(node.slice) if part is not index) is None:
                return  # a plain number is filled in, which waits for nothing
            new = _short(_unmasked(value), "values")
            yield _Wait("mask", statement, bool(certain and known), f"{x} = torch.where({m}, {new}, {x})")
        case ast.Assign([ast.Subscript(slice=stored)]) | ast.AugAssign(ast.Subscript(slice=stored)) if ast.unparse(
            stored
        ) == ast.unparse(node.slice):
            return  # x[mask] = y[mask] counts as one wait
        case _ if isinstance(node.ctx, ast.Load):
            yield _Wait("mask", node, certain, _without_mask(node, index, path))


def _unmasked(value: ast.expr) -> ast.expr:
    return value.value if isinstance(value, ast.Subscript) and mask_certainty(value.slice) is not None else value


def _without_mask(node: ast.Subscript, index: ast.expr, path: _Path) -> str:
    """A replacement of fixed size for a masked tensor and, if one is known, for the call around it."""
    x, m, count = _short(node.value), _short(index, "mask"), f"{_operand(index, 'mask')}.sum()"
    factor = m if isinstance(index, ast.UnaryOp) else _operand(index, "mask")
    match path[-2:]:
        case (
            [_, ast.Attribute(attr="shape")]
            | [ast.Call(), ast.Attribute(attr="numel" | "size")]
            | [_, ast.Call(ast.Name("len"))]
        ):
            return f"{count}, which stays on the GPU"
        case [ast.Call(args=[]), ast.Attribute(attr=reduction)] | [
            _,
            ast.Call(ast.Attribute(attr=reduction), [_], []),
        ] if reduction in _NEUTRAL:
            reduced, divided = ("sum", f" / {count}") if reduction == "mean" else (reduction, "")
            return f"torch.where({m}, {x}, {_NEUTRAL[reduction]}).{reduced}(){divided}, which keeps the size fixed"
        case [_, ast.Call(ast.Name(name) | ast.Attribute(attr=name))] if _IGNORING.search(name):
            return f"targets of -100 outside {m}, which are ignored (ignore_index): the size then stays fixed"
        case [_, ast.Call(ast.Name(name) | ast.Attribute(attr=name))] if _LOSS.search(name):
            return (
                f'reduction="none", then (loss * {_operand(index, "mask")}).sum() / {count}, which keeps the size fixed'
            )
    return f"multiply by {factor}, or torch.where({m}, {x}, 0): the size then does not depend on values"


def _short(node: ast.AST | None, otherwise: str = "x") -> str:
    """An expression as it is written; ``otherwise`` if it is long, or not all on this line."""
    text = ast.unparse(node) if node is not None else otherwise
    return text if len(text) <= _OPERAND_CHARS and not _ELSEWHERE.search(text) else otherwise


def _operand(node: ast.AST | None, otherwise: str = "x") -> str:
    text = _short(node, otherwise)
    return f"({text})" if isinstance(node, _COMPOUND) and text != otherwise else text


def _detached(node: ast.AST | None) -> str:
    text = _operand(node)
    return text if text.endswith(".detach()") else f"{text}.detach()"
