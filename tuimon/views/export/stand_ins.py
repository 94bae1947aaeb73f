"""Stand-ins for words, lines of code, paths and command lines: the same for the same, wherever it occurs.

Words that tuimon's rules know stay, and Python's own. A verdict can rest on no other name: ``loss``, ``item`` and
``forward`` decide something, a project's name does not. So the words are read from the code that judges, and a rule
that asks for another name needs no list beside it.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache

from tuimon.code_origin import is_generated, is_user_file
from tuimon.line_syntax import without_comment
from tuimon.masking import MASK

#: A word; names of Python's own (``__getitem__``) and what is called on modules that everybody has stay as they are.
_TOKEN = re.compile(r"(?P<public>(?<![\w.])(?:torch|nn|F|np|numpy|math|os|time|random|optim|dist)\.\w+|__[a-z]+__)|\w+")
#: A name of mathematics (``x``, ``h1``), and a number in code: they tell nothing of their author.
_PLAIN = re.compile(r"[A-Za-z]\d{0,3}|\d{1,6}|\d{1,3}e\d{0,3}|0[xob][\da-fA-F]{1,4}")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|(?:[\da-fA-F]{1,4}:){4,7}:?[\da-fA-F]{1,4}")
STAND_IN = "zz"  # how all of them begin, and no word that a rule knows
_DIGITS = 6  # of a longer number, which may be an account's or a day's, only that it is one is kept
_STEM, _ENDING = 4, 3  # letters of a known word, and of what may follow it: ``criteri`` + ``on``, ``loss`` + ``es``
#: The folder of a path from which on it names the library.
_LIBRARY = re.compile(
    r"/lib(?:64)?/(?:python|pypy)\d[\d.]*t?/|/(?:site|dist)-packages/|/python\d+\.zip/|(?:^|/)torch/|(?:^|/)tuimon/"
)
#: Files that torch.compile wrote: its cache is named after the user, or lies in a folder of the user's choice.
_GENERATED = re.compile(r".*?(?:/torchinductor_[^/]*)?(/\w\w/c\w+\.py)$")
#: torch's and CUDA's own names of operators and kernels.
_OF_TORCH = re.compile(
    r"(?:void )?(?:at|aten|autograd|c10|c10d|cub|cutlass|cublas\w*|cudnn|nccl|at_cuda_detail|\(anonymous namespace\))::"
    r"|(?:void )?\(anonymous namespace\)|sm\d+_|ampere_|hopper_|cuda[A-Z]|hip[A-Z]|nccl|triton_|Mem(?:cpy|set)\b"
    r"|\w+Backward\d+$|Optimizer\.\w+#|Command Buffer"
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: Modules that judge, below the package.
_JUDGES = (
    *("code_origin.py", "gpu_call_table.py", "gpu_calls.py", "library_code.py", "line_syntax.py", "records.py"),
    *("tensor_syntax.py", "torch_code.py", "session", "diagnosis"),
)
#: Modules that write notices.
_WRITERS = ("agent", "launch", "monitor", "sources")
#: Pages for people: they quote code of all kinds.
_LEFT_OUT = os.path.join("diagnosis", "explain")
#: Parts of a pattern: escapes, flags and quantifiers, which are no letters of a word.
_NO_LETTERS = re.compile(r"\\[A-Za-z]|\(\?[a-zA-Z]+\)|\{[\d,]+\}")
_CHOICE = re.compile(r"\[(\w)(\w)\]")
_CHUNK = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


class StandIns:
    """Gives each word, host and GPU one name that stands for it."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self._gpus: dict[str, str] = {}

    def code(self, text: str) -> str:
        """A line of code without its comment, a name or any other text: only words of the rules stay."""
        return self._replaced(without_comment(text), of_rules())

    def message(self, text: str) -> str:
        """A text that tuimon wrote, with names and paths of the user's in it."""
        return self._replaced(text, of_messages())

    def path(self, file: str) -> str:
        """A file: of a library, its path below the folder of packages; of the user's, as many folders as it has."""
        if file.startswith("<"):
            return self.code(file)
        if is_user_file(file):
            return "/".join(self._replaced(part, of_rules()) for part in file.split("/"))
        if is_generated(file):
            generated = _GENERATED.match(file)
            return f"/tmp/torchinductor_user{generated[1] if generated is not None else '/a.py'}"
        begin = _LIBRARY.search(file)
        if begin is None:
            return self._replaced(file, of_rules())
        return self._replaced(file[: begin.start()], of_rules()) + file[begin.start() :]

    def function(self, name: str, file: str) -> str:
        """A function in that file; those of libraries stay."""
        return self.code(name) if is_user_file(file) else name

    def operator(self, name: str) -> str:
        """The name of an operator or a kernel in a trace; those of torch and CUDA stay."""
        return name if _OF_TORCH.match(name) else self.code(name)

    def command(self, words: Iterable[str]) -> list[str]:
        """A command line's program, module and scripts, ``***`` for the rest."""
        kept: list[str] = []
        is_module, hides = False, False
        for number, word in enumerate(words):
            if number == 0 or word.endswith(".py"):
                kept.append(self.path(word))
            elif is_module:
                kept.append(self.code(word))
            elif word == "-m":
                kept.append(word)
            else:
                hides = True
            is_module = word == "-m"
        return [*kept, MASK] if hides else kept

    def host(self, name: str) -> str:
        """The name of a machine."""
        return self._hosts.setdefault(name, f"host{len(self._hosts) + 1}")

    def run(self, _name: str) -> str:
        """The name of a run: a log is of one."""
        return "run1"

    def gpu(self, uuid: str) -> str:
        """A GPU's UUID, with the prefix that it has."""
        prefix = next((each for each in ("GPU-", "MIG-") if uuid.startswith(each)), "")
        bare = uuid.removeprefix(prefix).lower()
        return prefix + self._gpus.setdefault(bare, f"00000000-0000-0000-0000-{len(self._gpus) + 1:012}")

    def _replaced(self, text: str, known: frozenset[str]) -> str:
        return _TOKEN.sub(lambda found: found["public"] or self._token(found[0], known), _ADDRESS.sub("0.0.0.0", text))

    def _token(self, token: str, known: frozenset[str]) -> str:
        return "_".join(self._chunk(chunk, known) for chunk in token.split("_"))

    def _chunk(self, chunk: str, known: frozenset[str]) -> str:
        if not chunk or chunk.lower() in known or _PLAIN.fullmatch(chunk):
            return chunk
        parts: list[str] = _PARTS.findall(chunk)
        if any(len(part) == 1 and part.isalpha() for part in parts):  # a key, or a hash: its pieces are no words
            return self._word(chunk)
        return "".join(self._part(part, known) for part in parts)

    def _part(self, part: str, known: frozenset[str]) -> str:
        if part.isdecimal():
            return part if len(part) <= _DIGITS else "0"
        lower = part.lower()
        ends = range(max(_STEM, len(lower) - _ENDING), len(lower) + 1)
        return part if lower in known or any(lower[:end] in known for end in ends) else self._word(part)

    def _word(self, word: str) -> str:
        """Its stand-in, in capitals where it is: of constants and classes the rules know that they are."""
        known = self._words.setdefault(word.lower(), self._next())
        return known.upper() if word.isupper() else known.capitalize() if word[0].isupper() else known

    def _next(self) -> str:
        number, letters = len(self._words), ""
        while number >= 0:
            number, letter = divmod(number, 26)
            letters = chr(ord("a") + letter) + letters
            number -= 1
        return STAND_IN + letters


@cache
def of_rules() -> frozenset[str]:
    """In lower case: words of names and patterns in the rules, keywords, builtins, modules of the standard library."""
    found = {word for path in _files(_JUDGES) for text in _names(path) for word in _words(text)}
    python = (*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *sys.stdlib_module_names)
    return frozenset(found | {word for name in python for word in _words(name)} | {"py", "venv"})


@cache
def of_messages() -> frozenset[str]:
    """Beside these, all words of the code that writes notices: the rest of a notice is the user's paths and names."""
    found: set[str] = set()
    for path in _files(_WRITERS):
        with open(path, encoding="utf-8") as file:
            found.update(chunk.lower() for chunk in _CHUNK.findall(file.read()))
    return of_rules() | found


def _files(below: tuple[str, ...]) -> Iterator[str]:
    for name in below:
        top = os.path.join(_PACKAGE, name)
        if top.endswith(".py"):
            yield top
        for folder, _, files in os.walk(top):
            if not os.path.relpath(folder, _PACKAGE).startswith(_LEFT_OUT):
                yield from (os.path.join(folder, file) for file in files if file.endswith(".py"))


def _texts(path: str) -> Iterator[str]:
    """The string constants of a file, docstrings left out."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def _names(path: str) -> Iterator[str]:
    """Those that are names or patterns, and no sentences."""
    return (text for text in _texts(path) if " " not in text.strip() or "\\" in text)


def _words(text: str) -> Iterator[str]:
    """The words of a text or pattern, in lower case, with each letter that is optional and without."""
    plain = _NO_LETTERS.sub(" ", text)
    for first in {_CHOICE.sub(r"\1", plain), _CHOICE.sub(r"\2", plain)}:
        for each in {re.sub(r"\w\?", "", first), first.replace("?", "")}:
            for chunk in _CHUNK.findall(each):
                yield chunk.lower()
                yield from (part.lower() for part in _PARTS.findall(chunk) if len(part) > 1)
