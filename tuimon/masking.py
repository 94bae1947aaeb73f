"""Secrets in command lines, masked before a command line enters a record: logs are kept and sent around.

A value is masked when its name marks it as secret (``--api-key X``, ``WANDB_API_KEY=X``), when it is a URL's
password, or when it has the shape of a well-known kind of token. The names are matched part by part, so that
``--tokenizer`` and ``--num-tokens`` are not ``--token``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"

#: Names that end in one of these are secret, each given as the parts of a name.
_SECRET_ENDS = (
    *(("password",), ("passwd",), ("passphrase",), ("secret",), ("token",), ("apikey",), ("credentials",)),
    *((kind, "key") for kind in ("api", "access", "secret", "private", "auth", "account", "encryption", "signing")),
)
#: A token of a language model, not of an account, when one of these stands before it: ``--eos-token``.
_TOKEN_WORDS = frozenset(
    (
        *("bos", "eos", "bot", "eot", "pad", "unk", "sep", "cls", "mask", "special", "image", "audio", "video"),
        *("start", "end", "stop", "first", "last", "new", "next", "prefix", "suffix", "decoder"),
        *("min", "max", "num", "n", "per", "by"),
    )
)
#: The end of a variable's name in capitals.
_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:API)?KEY$|(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS)$")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# All repetitions are bounded, because a search restarts at every character.
_NAME = r"[A-Za-z_][\w.-]{0,99}"
_OPTION = re.compile(rf"[-+~]{{0,2}}{_NAME}")
_SPACE = re.compile(r"\s")
_VALUE = r"""("[^"]{0,999}"|'[^']{0,999}'|[^\s"']+)"""
_ASSIGNED = re.compile(rf"(?<![\w.+~-])(?P<name>[-+~]{{0,2}}{_NAME})(?P<between>=){_VALUE}")
_FLAG = re.compile(rf"(?<!\S)(?P<name>--?{_NAME})(?P<between>\s{{1,99}}){_VALUE}")
#: Shapes that are secret whatever precedes them: the part that is kept, and the part that is masked.
_SHAPES = (
    re.compile(r"(\b[A-Za-z][\w+.-]{0,19}://[^\s/:@]{0,199}:)[^\s/@]{1,999}(?=@)"),  # scheme://user:password@
    re.compile(r"(https?://)[^\s/:@]{1,999}(?=@)"),  # https://token@
    re.compile(r"([?&](?:[\w-]{0,99}[_-])?(?:token|key|secret|password|signature)=)[^\s&#]+", re.IGNORECASE),
    re.compile(r"(\bauthorization: ?\w{1,19} )[^\s\"']+", re.IGNORECASE),
    re.compile(r"(\b)(?:hf_|gh[opsu]_|github_pat_|glpat-|sk-(?:proj-|ant-)?)\w{20,}"),
    re.compile(r"(\b)AKIA[0-9A-Z]{16}\b"),
)
#: Without any of these a word holds nothing that the patterns above find.
_SUSPECT = re.compile(r"[=@\s]|hf_|gh[opsu]_|github_pat_|glpat-|sk-|AKIA")


def masked(words: Iterable[str]) -> list[str]:
    """The command line with ``***`` for each secret value; as many words as before."""
    out: list[str] = []
    before = ""
    for word in words:
        if _is_flag(before) and is_secret(before) and not _is_flag(word):
            out.append(MASK)
        else:
            out.append(_masked_word(word, is_script=before == "-c"))
        before = word
    return out


def is_secret(name: str) -> bool:
    """True if the value of an option or variable of this name is secret."""
    name = name.lstrip("-+~").rpartition(".")[2].replace("-", "_")  # trainer.api_key=X
    if name.isupper():
        return _SECRET_VARIABLE.search(name) is not None and not _is_of_text(name.lower().split("_"))
    parts = [part.lower() for part in _PARTS.findall(name)]
    return any(tuple(parts[-len(end) :]) == end for end in _SECRET_ENDS) and not _is_of_text(parts)


def _is_of_text(parts: list[str]) -> bool:
    return parts[-1] == "token" and not _TOKEN_WORDS.isdisjoint(parts[:-1])


def _is_flag(word: str) -> bool:
    return word.startswith("-") and _OPTION.fullmatch(word) is not None


def _masked_word(word: str, *, is_script: bool) -> str:
    if not _SUSPECT.search(word):
        return word
    name, equals, _ = word.partition("=")
    if equals and not is_script and _OPTION.fullmatch(name) and is_secret(name):
        return f"{name}={MASK}"  # a value may hold spaces
    for pattern in _SHAPES:
        word = pattern.sub(rf"\g<1>{MASK}", word)
    if not _SPACE.search(word):
        return word
    return _FLAG.sub(_masked_value, _ASSIGNED.sub(_masked_value, word))  # one word may hold a whole line for a shell


def _masked_value(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    hides = is_secret(name) and not (between.isspace() and value.startswith("-"))
    return f"{name}{between}{MASK}" if hides else found.group()
