"""Syntax of the user's code: parses files and single lines, and tells tensors and masks from plain values.

Loads Python's parser, so import it late.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

from tuimon.text import STRING_OR_COMMENT, without_comment

#: The head of a block, which needs a body to be a statement.
_HEAD = re.compile(r"(?:async )?(?:class|def|elif|for|if|while|with)\b.*:$", re.DOTALL)
#: A block's head that may have its body on the same line.
_BARE_HEAD = re.compile(r"(?:else|finally|try)\s*:\s*")
#: The beginning of a further line of a condition.
_CONDITION = re.compile(r"(?:and|or)\b")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def parsed_line(source: str) -> ast.Module | None:
    """A line's syntax tree; None for a part of a statement, or a line that was cut."""
    return parsed(source.removeprefix("el") + " pass" if _HEAD.match(source) else source)


def parsed(text: str | bytes) -> ast.Module | None:
    """The syntax tree of a text; None if it is not Python, or Python of another version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, which is not ours to judge
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parsed_part(source: str) -> tuple[ast.Module, str] | None:
    """A line's syntax tree and the text that its positions refer to, also of a part of a statement.

    ``_`` stands for operands on other lines: ``.mean().item())`` becomes ``(_ .mean().item())``.
    """
    for text in (source, *_completions(source)):
        tree = parsed_line(text)
        if tree is not None:
            return tree, text.removeprefix("el") if _HEAD.match(text) else text
    return None


def last_name(node: ast.AST) -> str:
    """``d`` of ``a.b.d`` and of ``d``; empty for any other expression."""
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


#: The argument with which each turns gradients off; a value known only at run time does not count.
_OFF = {"no_grad": True, "inference_mode": True, "set_grad_enabled": False}


def turns_off_gradients(expression: ast.expr) -> bool:
    """True if it is ``torch.no_grad()`` or the like; as a decorator without its parentheses, too."""
    arguments: list[ast.expr] = []
    if isinstance(expression, ast.Call):
        arguments = [*expression.args, *(keyword.value for keyword in expression.keywords)]
        expression = expression.func
    name = last_name(expression)
    if name not in _OFF:
        return False
    values = [argument.value if isinstance(argument, ast.Constant) else None for argument in arguments]
    return values == [_OFF[name]] or (not values and name != "set_grad_enabled")


def _completions(source: str) -> Iterator[str]:
    """Statements that a line may be a part of."""
    line = without_comment(_BARE_HEAD.sub("", source)).rstrip(" \\")
    opening, closing = _other_brackets(line)
    yield f"{opening}{line}{closing}"
    yield f"{opening}{line}{closing}:"
    part = line.rstrip(":")
    head, end = ("if ", ":") if _CONDITION.match(line) else ("", "")
    for before in ("", "_ "):
        for after in ("", " _", " else _"):
            yield f"{head}{opening}{before}{part}{after}{closing}{end}"
    yield f"{{{opening}{part}{closing}}}"


def _other_brackets(line: str) -> tuple[str, str]:
    """The brackets that a line lacks: those opened on earlier lines, and those closed on later ones."""
    opening, closing = "", ""
    for character in STRING_OR_COMMENT.sub("", line):
        if character in _BRACKETS:
            closing = _BRACKETS[character] + closing
        elif character in _BRACKETS.values():
            if closing.startswith(character):
                closing = closing[1:]
            else:
                opening = next(key for key, value in _BRACKETS.items() if value == character) + opening
    return opening, closing


#: Modules by the names that code gives them; functions of "plain" modules return no tensor.
_MODULES = {
    **dict.fromkeys(("F", "functional", "nn", "torch"), "torch"),
    **dict.fromkeys(("LA", "linalg"), "linalg"),
    **dict.fromkeys(
        ("cv2", "datetime", "itertools", "json", "np", "numpy", "os", "pd", "random", "sys", "time"), "plain"
    ),
    "math": "math",
}
#: Names of settings, which are plain.
_SETTINGS = re.compile(
    r"(?i)(?:arg|arguments|args|cfg|conf|config|flags|hparams|hps|opt|opts|options|params|settings)$"
)
#: Names that nearly all code gives to plain values: counters, sizes, switches, and constants.
_PLAIN_NAME = re.compile(
    r"(?:_|i|j|begin|debug|device|end|epochs?|hi|idx|index|it|iters?|iteration|lo|mode|name|offset|path|rank|self|size"
    r"|start|steps?|stop|t0|train|training|verbose|\w+_(?:every|freq|id|idx|index|interval|name|path|size|steps?)"
    r"|(?:num|use|with)_\w+|n_\w+|[A-Z][A-Z0-9_]+)$"
)
_PLAIN_ATTRIBUTE = re.compile(r"(?:columns|dtype|is_\w+|layout|ndim|requires_grad|shape|suffix)$")
_PLAIN_METHOD = re.compile(
    r"(?:append|data_ptr|dim|element_size|empty|endswith|exists|format|get|get_\w+|is_\w+|items?|join|keys|lower|ndimension"
    r"|nelement|numel|numpy|pop|query|random|read|replace|size|split|startswith|storage_offset|stride|strip|tolist|upper"
    r"|values)$"
)
#: Methods that return a tensor if they are called on one.
_TENSOR_METHOD = re.compile(
    r"(?:abs|add|all|a?max|a?min|any|arg(?:max|min|sort)|bfloat16|bool|ceil|clamp|clone|contiguous|cos|count_nonzero|cuda"
    r"|cumsum|detach|diff|div|dot|double|eq|exp|expand(?:_as)?|flatten|float|floor|g[et]|half|int|is(?:finite|inf|nan)|l[et]"
    r"|log\w*|long|masked_fill|matmul|maximum|mean|median|minimum|mul|neg?|norm|not_equal|permute|pow|prod|quantile|reshape"
    r"|round|rsqrt|select|sigmoid|sign|sin|softmax|sort|sqrt|square|squeeze|std|sub|sum|t|tanh|to|topk|transpose|trunc|type"
    r"|unsqueeze|var|view|where)$"
)
_PLAIN_FUNCTION = re.compile(
    r"(?:is_(?!nonzero)|get_|set_|device$|finfo|iinfo|no_grad|manual_seed|Size|numel|cuda\.|distributed\.|backends\.)"
)
#: Functions that make a tensor in the memory of the CPU, unless they are given a device.
_MAKER = re.compile(
    r"(?:arange|as_tensor|empty|eye|from_numpy|full|linspace|ones|rand|randint|randn|randperm|tensor|zeros)$"
)
_PLAIN_BUILTIN = re.compile(
    r"(?:all|any|bool|callable|complex|enumerate|float|format|getattr|hasattr|id|input|int|isinstance|issubclass|iter|len|next"
    r"|open|ord|print|range|repr|set|str|super|type|vars|zip)$"
)
#: Functions whose results are tensors if their arguments are.
_LIKE_ARGUMENTS = re.compile(r"(?:abs|list|max|min|reversed|sorted|sum|tuple)$")

#: Names of masks, and others that may hold positions as well, such as the result of ``nms``.
_MASK = re.compile(r"(?:\w+_)?(?:invalid|masks?|pad|padded|padding|valid)(?:_\w+)?$")
_MAYBE_MASK = re.compile(
    r"(?:\w+_)?(?:active|alive|chosen|correct|dones?|finite|ignored?|inside|keep|kept|missing|nonpad|observed|outside|present"
    r"|select|selected|selection|unvisited|visible|visited|wrong)(?:_\w+)?$|(?:has|is|not)_\w+$"
)
_NO_MASK = re.compile(r"(?:n|num)_|(?:.*_)?(?:count|ids?|idx|index|indices|inds?|len|lengths?|pos|size|tokens?|value)$")
#: Methods whose result is a mask, and those that give a mask another form.
_MASK_METHOD = re.compile(r"(?:bool|eq|g[et]|is(?:finite|in|inf|nan)|l[et]|logical_(?:and|not|or|xor)|ne|not_equal)$")
_FORM = re.compile(r"(?:clone|contiguous|detach|expand|expand_as|flatten|reshape|squeeze|to|unsqueeze|view|view_as)$")
_COMPARISON = ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE
_BITWISE = ast.BitAnd | ast.BitOr | ast.BitXor


def tensor_certainty(node: ast.AST | None, called: bool | None = False) -> bool | None:
    """True if an expression is certainly a tensor, False if perhaps, None if it is a plain value.

    ``called``: the answer for calls of unknown functions.
    """
    match node:
        case ast.Name(id=name):
            return None if _PLAIN_NAME.match(name) or _SETTINGS.match(name) else False
        case ast.Attribute(value, name):
            owner = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
            if _PLAIN_ATTRIBUTE.match(name) or _PLAIN_NAME.match(name) or _SETTINGS.match(owner) or module_of(node):
                return None
            return False if isinstance(value, ast.Name) else tensor_certainty(value, called)
        case ast.Subscript(value, index):
            return True if any(mask_certainty(part) for part in parts(index)) else tensor_certainty(value, called)
        case ast.Call():
            return _call(node, called)
        case ast.UnaryOp(ast.USub() | ast.UAdd() | ast.Invert(), value) | ast.Starred(value) | ast.NamedExpr(_, value):
            return tensor_certainty(value, called)
        case ast.BinOp(left, _, right):
            return None if _is_text(left) or _is_text(right) else any_tensor((left, right), called)
        case ast.Compare(left, operators, others):
            if all(isinstance(operator, _COMPARISON) for operator in operators):
                constants = [each.value for each in (left, *others) if isinstance(each, ast.Constant)]
                no_numbers = any(isinstance(each, bool) or not isinstance(each, int | float) for each in constants)
                return None if no_numbers else any_tensor((left, *others), called)
            return None
        case ast.BoolOp(_, values) | ast.List(values) | ast.Tuple(values) | ast.Set(values) | ast.Dict(_, values):
            return any_tensor(values, called)
        case ast.IfExp(_, body, orelse):
            return any_tensor((body, orelse), called)
        case ast.ListComp(value) | ast.GeneratorExp(value) | ast.SetComp(value) | ast.DictComp(_, value):
            return tensor_certainty(value, called)
    return None


def any_tensor(nodes: Iterable[ast.AST | None], called: bool | None = False) -> bool | None:
    """The most certain of the answers for these expressions."""
    found = [tensor_certainty(node, called) for node in nodes]
    return True if True in found else False if False in found else None


def _call(node: ast.Call, called: bool | None) -> bool | None:
    match node.func:
        case ast.Name(id=name):
            if _LIKE_ARGUMENTS.match(name):
                return any_tensor(node.args, called)
            return None if _PLAIN_BUILTIN.match(name) else called
        case ast.Attribute(owner, name):
            module = module_of(node.func)
            if module in ("math", "plain") or _PLAIN_METHOD.match(name):
                return None
            if module:
                function = ast.unparse(node.func).partition(".")[2]
                return None if _PLAIN_FUNCTION.match(function) else not is_made_on_cpu(node)
            if name == "cpu" or (name == "to" and is_to_cpu(node)):
                return None
            known = tensor_certainty(owner, called)
            if known is None and not isinstance(owner, ast.Name):
                return None
            return (not is_made_on_cpu(owner)) if known or _TENSOR_METHOD.match(name) else called
    return called


def mask_certainty(node: ast.AST) -> bool | None:
    """True if an index is certainly a mask, False if it may hold positions instead, None if nothing suggests a mask."""
    match node:
        case ast.Compare(_, operators, _):
            compares = all(isinstance(operator, _COMPARISON) for operator in operators)
            return True if compares and tensor_certainty(node) is not None else None
        case ast.UnaryOp(ast.Invert(), _):
            return True
        case ast.BinOp(left, operator, right) if isinstance(operator, _BITWISE):
            found = {mask_certainty(left), mask_certainty(right)}
            return True if True in found else False if False in found else None
        case ast.Call(ast.Attribute(owner, name)):
            if _MASK_METHOD.match(name):
                return None if tensor_certainty(node) is None else True
            return mask_certainty(owner) if _FORM.match(name) else None
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(str(name))):
            if _NO_MASK.match(name.lower()):
                return None
            return True if _MASK.match(name.lower()) else False if _MAYBE_MASK.match(name.lower()) else None
        case ast.Subscript(value, _):
            return mask_certainty(value)
    return None


def parts(index: ast.expr) -> list[ast.expr]:
    """The indices of a subscript, one for each dimension."""
    return index.elts if isinstance(index, ast.Tuple) else [index]


def module_of(function: ast.AST) -> str:
    """The module of a dotted name, by that name alone: "torch" of ``F.relu``, "linalg", "math", "plain" or ""."""
    attributes = []
    while isinstance(function, ast.Attribute):
        attributes.append(function.attr)
        function = function.value
    module = _MODULES.get(function.id, "") if isinstance(function, ast.Name) else ""
    return "linalg" if module == "torch" and "linalg" in attributes[1:] else module


def is_made_on_cpu(node: ast.AST | None) -> bool:
    """True if an expression begins with a tensor that is made in the CPU's memory: ``torch.rand(1).sum()``."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        match node:
            case ast.Call(ast.Attribute(_, name) as function, _, keywords) if module_of(function) == "torch":
                return _MAKER.match(name) is not None and "device" not in {keyword.arg for keyword in keywords}
            case ast.Call(function):
                node = function
            case _:
                node = node.value
    return False


def is_to_cpu(call: ast.Call) -> bool:
    """True if a call names the CPU as the device: ``.to("cpu")``, ``.to(device=torch.device("cpu"))``."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    device = named.get("device", call.args[0] if call.args else None)
    return device is not None and "'cpu'" in ast.unparse(device)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
