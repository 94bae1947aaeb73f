"""Finds the calls on a line that wait for the GPU, and replacements; loads Python's parser, so import it late."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tuimon.bounds import MANY_HELD
from tuimon.gpu_call_table import (
    BRANCH,
    BY_KEY,
    FIXED,
    KEEP,
    PRINT,
    UNMISTAKABLE,
    CallSyntax,
    SyncKind,
    WaitingCall,
    call_syntax,
)
from tuimon.line_syntax import any_tensor, is_made_on_cpu, mask, parsed_line, parsed_part, parts, tensor

_LINE_CHARS = 500
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
    instead: str  # what does not wait, as one clause


class _Wait(NamedTuple):
    kind: SyncKind
    node: ast.AST
    is_certain: bool
    instead: str


def sync_calls(source: str) -> tuple[SyncCall, ...]:
    """The waits for the GPU on a line of the user's, which may be a part of a statement.

    Certain ones come first, in the order of execution: the first waits for all that is queued, later ones for little.
    """
    return _sync_calls(source[:_LINE_CHARS])


@lru_cache(MANY_HELD)
def _sync_calls(source: str) -> tuple[SyncCall, ...]:
    try:
        parsed = parsed_part(source)
        found = [*(_in_text(source) if parsed is None else _in_tree(*parsed))]
    except (RecursionError, ValueError):  # ast.unparse raises both
        found = [*_in_text(source)]
    by_text: dict[str, SyncCall] = {}
    for call in found:
        by_text.setdefault(call.what, call)
    return tuple(sorted(by_text.values(), key=lambda call: not call.is_certain))


def _in_text(source: str) -> Iterator[SyncCall]:
    """Calls in a text that is not Python, by their names."""
    for owner, key in _UNMISTAKABLE.findall(_COMMENT_OR_STRING.sub("''", source)):
        if not owner.startswith(("np.", "numpy.")):
            row, x = UNMISTAKABLE[key], owner if key.startswith(".") and owner else "x"
            instead = row.instead.format(x=f"{x}.detach()" if row.instead == KEEP else x, f=key.rpartition(".")[2])
            yield SyncCall(row.kind, _cut(f"{owner}{key}()"), True, instead)


def _in_tree(tree: ast.Module, text: str) -> Iterator[SyncCall]:
    for wait in _in_order(tree, ()):
        plain, written = ast.unparse(wait.node), ast.get_source_segment(text, wait.node) or ""
        is_it = (again := parsed_line(written)) is not None and ast.unparse(again) == plain
        what = written if is_it else plain  # before Python 3.12, positions in f-strings are unreliable
        yield SyncCall(wait.kind, _cut(what.removeprefix("_ ")), wait.is_certain, wait.instead)


def _cut(text: str) -> str:
    return text if len(text) <= _WHAT_CHARS else text[: _WHAT_CHARS - 1] + "…"


def _in_order(node: ast.AST, path: _Path) -> Iterator[_Wait]:
    inside = (*path, node)
    for child in _children(node):
        yield from _in_order(child, inside)
    match node:
        case ast.Call():
            yield from _of_call(node, path)
        case ast.Subscript():
            yield from _of_subscript(node, path)
        case ast.JoinedStr(values) if not (isinstance(path[-1], ast.FormattedValue) and path[-1].format_spec is node):
            yield from _of_text(node, [value.value for value in values if isinstance(value, ast.FormattedValue)])
        case ast.BinOp(ast.Constant(str()), ast.Mod(), value):
            yield from _of_text(node, [value])
    if _is_tested(node, path) and not isinstance(node, ast.Attribute | ast.BoolOp):
        certain = tensor(node, called=None)
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


def _of_call(node: ast.Call, path: _Path) -> Iterator[_Wait]:
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
        return PRINT.format(x=_kept(next(node for node in call.arguments if tensor(node) is not None)))
    return row.instead.format(x=_kept(call.operand) if row.instead == KEEP else _operand(call.operand), f=name)


def _of_text(node: ast.expr, values: list[ast.expr]) -> Iterator[_Wait]:
    certain = any_tensor(values)
    if certain is not None:
        first = next(value for value in values if tensor(value) is not None)
        yield _Wait("print", node, certain, PRINT.format(x=_kept(first)))


def _of_subscript(node: ast.Subscript, path: _Path) -> Iterator[_Wait]:
    base, indices = node.value, parts(node.slice)
    if (tensor(base) is None and not isinstance(base, ast.Name)) or getattr(base, "attr", "") in _INDEXERS:
        return
    masks = [(certain, index) for index in indices if (certain := mask(index)) is not None]
    if masks:
        certain, index = max(masks, key=lambda pair: pair[0])
        yield from _of_mask(node, index, certain, path)
        return
    for index in indices:
        if isinstance(index, ast.Slice):
            size = any_tensor(filter(None, (index.lower, index.upper, index.step)), called=None)
            if size is not None:
                yield _Wait("shape", node, size, FIXED)
        elif tensor(index) and _ONE_NUMBER.search(text := ast.unparse(index)):
            yield _Wait("read", node, True, f"{text}.view(1) as the index, which the GPU looks up")


def _of_mask(node: ast.Subscript, index: ast.expr, certain: bool, path: _Path) -> Iterator[_Wait]:
    x, m, statement = _short(node.value), _short(index, "mask"), path[-1]
    match statement:
        case ast.AugAssign(target, operator, value) if target is node:
            new = _short(ast.BinOp(node.value, operator, _unmasked(value)), "values")
            yield _Wait("mask", statement, certain, f"{x} = torch.where({m}, {new}, {x})")
        case ast.Assign(targets, value) if node in targets:
            known = tensor(value)
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
    return value.value if isinstance(value, ast.Subscript) and mask(value.slice) is not None else value


def _without_mask(node: ast.Subscript, index: ast.expr, path: _Path) -> str:
    """A replacement of fixed size for a masked tensor and, as far as it is known, for the call around it."""
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


def _kept(node: ast.AST | None) -> str:
    text = _operand(node)
    return text if text.endswith(".detach()") else f"{text}.detach()"
