"""Stand-ins for words, lines of code, paths and command lines: the same for the same, wherever it occurs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuimon.code_origin import is_generated, is_user_file
from tuimon.line_syntax import without_comment
from tuimon.masking import MASK
from tuimon.views.export.anonymous.vocabulary import PARTS, of_messages, of_rules

#: A word; names of Python's own (``__getitem__``) and what is called on modules that everybody has stay as they are.
_TOKEN = re.compile(r"(?P<public>(?<![\w.])(?:torch|nn|F|np|numpy|math|os|time|random|optim|dist)\.\w+|__[a-z]+__)|\w+")
#: A name of mathematics (``x``, ``h1``), and a number in code: they tell nothing of their author.
_PLAIN = re.compile(r"[A-Za-z]\d{0,3}|\d{1,6}|\d{1,3}e\d{0,3}|0[xob][\da-fA-F]{1,4}")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|(?:[\da-fA-F]{1,4}:){4,7}:?[\da-fA-F]{1,4}")
STAND_IN = "zz"  # how all of them begin, and no word that a rule knows
_DIGITS = 6  # of a longer number, which may be an account's or a day's, only that it is one is kept
_STEM, _ENDING = 4, 3  # letters of a known word, and of what may follow it: ``criteri`` + ``on``, ``loss`` + ``es``
#: Where the path of a library begins to say which library it is.
_LIBRARY = re.compile(
    r"/lib(?:64)?/(?:python|pypy)\d[\d.]*t?/|/(?:site|dist)-packages/|/python\d+\.zip/|(?:^|/)torch/|(?:^|/)tuimon/"
)
#: What torch.compile wrote: its cache is named after the user, or lies in a folder of the user's choice.
_GENERATED = re.compile(r".*?(?:/torchinductor_[^/]*)?(/\w\w/c\w+\.py)$")
#: torch's and CUDA's own names of operators and kernels.
_OF_TORCH = re.compile(
    r"(?:void )?(?:at|aten|autograd|c10|c10d|cub|cutlass|cublas\w*|cudnn|nccl|at_cuda_detail|\(anonymous namespace\))::"
    r"|(?:void )?\(anonymous namespace\)|sm\d+_|ampere_|hopper_|cuda[A-Z]|hip[A-Z]|nccl|triton_|Mem(?:cpy|set)\b"
    r"|\w+Backward\d+$|Optimizer\.\w+#|Command Buffer"
)


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
        """What a trace calls an operator or a kernel; those of torch and CUDA stay."""
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
        parts: list[str] = PARTS.findall(chunk)
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
