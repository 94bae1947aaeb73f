"""Names of user ranges: interned with the place they were opened at, however many the user makes up."""

import re
from types import CodeType, FrameType
from typing import Dict, Optional, Set, Tuple

from .layout import PLACE_SEPARATOR
from .writer import RingWriter

#: From this many distinct names on, digits are taken for a counter: "iter 1043" becomes "iter #".
_DISTINCT_LIMIT = 64
_NAMES_LIMIT = 1024
_CACHE_LIMIT = 4096
_NAME_CHARACTERS = 200
_OVERFLOW = "(more names)"


class RangeNames:
    """Interns the names of one ring. The usual case is one lookup."""

    def __init__(self, writer: RingWriter) -> None:
        self._writer = writer
        self._seen: Set[str] = set()
        # The code object stands beside the number so that its id is not reused. (Hashing it would hash its constants.)
        self._numbers: Dict[Tuple[object, int, int], Tuple[int, Optional[CodeType]]] = {}

    def number(self, name: object, frame: FrameType) -> int:
        """Id of a range opened by the instruction that ``frame`` is at; 0 when there is no room for its name."""
        try:
            return self._numbers[name, id(frame.f_code), frame.f_lasti][0]
        except Exception:  # unknown, or a name that cannot be hashed
            return self._intern(name, frame.f_code, frame.f_lasti, frame.f_lineno)

    def number_of_function(self, name: object, code: Optional[CodeType]) -> int:
        """Id of a range that is a whole function."""
        try:
            return self._numbers[name, id(code), -1][0]
        except Exception:  # unknown, or a name that cannot be hashed
            return self._intern(name, code, -1, code.co_firstlineno if code else 0)

    def _intern(self, name: object, code: Optional[CodeType], instruction: int, line: int) -> int:
        """The slow way, and the only one that may meet what it does not expect: never raises."""
        try:
            return self._remember(name, code, instruction, line)
        except Exception:
            return 0

    def _remember(self, name: object, code: Optional[CodeType], instruction: int, line: int) -> int:
        text = self._bounded(_plain(name))
        parts = (text, code.co_filename, code.co_name, str(line)) if code else (text,)
        number = self._writer.name_id(PLACE_SEPARATOR.join(parts))
        if number and name.__class__ is str and text == name and len(self._numbers) < _CACHE_LIMIT:
            self._numbers[name, id(code), instruction] = (number, code)
        return number

    def _bounded(self, text: str) -> str:
        seen = self._seen
        if text not in seen and len(seen) >= _DISTINCT_LIMIT:
            text = re.sub(r"\d+", "#", text)
        if text not in seen:
            if len(seen) >= _NAMES_LIMIT:
                return _OVERFLOW
            seen.add(text)
        return text


def _plain(name: object) -> str:
    try:
        text = str(name)
    except Exception:
        return "?"
    return text[:_NAME_CHARACTERS].replace(PLACE_SEPARATOR, "?")
