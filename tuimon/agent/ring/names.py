"""Interns the names of user ranges with the place they were opened at, in a bounded table."""

import re
from types import CodeType, FrameType
from typing import Dict, Optional, Set, Tuple

from ..outside import attempt
from .layout import PLACE_SEPARATOR
from .writer import RingWriter

#: After this many distinct names, digits are taken for a counter: "iter 1043" becomes "iter #".
_DISTINCT_LIMIT = 64
_NAMES_LIMIT = 1024
_CACHE_LIMIT = 4096
_NAME_CHARACTERS = 200
_OVERFLOW = "(more names)"


class RangeNames:
    """Interns the names of one ring; a known name at a known place costs one lookup."""

    def __init__(self, writer: RingWriter) -> None:
        self._writer = writer
        self._seen: Set[str] = set()
        # Keeps the code object beside the name id, so that its ``id()`` is not reused. (Its hash hashes its constants.)
        self._ids: Dict[Tuple[object, int, int], Tuple[int, Optional[CodeType]]] = {}

    def place_id(self, name: object, frame: FrameType) -> int:
        """Name id of a range opened by the current instruction of ``frame``; 0 when there is no room for its name."""
        known = self._ids.get((name, id(frame.f_code), frame.f_lasti)) if name.__class__ is str else None
        return known[0] if known else self._intern(name, frame.f_code, frame.f_lasti, frame.f_lineno)

    def function_id(self, name: object, code: Optional[CodeType]) -> int:
        """Name id of a range that is a whole function; 0 when there is no room for its name."""
        known = self._ids.get((name, id(code), -1)) if name.__class__ is str else None
        return known[0] if known else self._intern(name, code, -1, code.co_firstlineno if code else 0)

    def _intern(self, name: object, code: Optional[CodeType], instruction: int, line: int) -> int:
        """The slow path, for unknown names and names of any type; never raises."""
        return attempt(self._remember, name, code, instruction, line) or 0

    def _remember(self, name: object, code: Optional[CodeType], instruction: int, line: int) -> int:
        text = self._limited(_plain(name))
        parts = (text, code.co_filename, code.co_name, str(line)) if code else (text,)
        number = self._writer.name_id(PLACE_SEPARATOR.join(parts))
        if number and name.__class__ is str and text == name and len(self._ids) < _CACHE_LIMIT:
            self._ids[name, id(code), instruction] = (number, code)
        return number

    def _limited(self, text: str) -> str:
        seen = self._seen
        if text not in seen and len(seen) >= _DISTINCT_LIMIT:
            text = re.sub(r"\d+", "#", text)
        if text not in seen:
            if len(seen) >= _NAMES_LIMIT:
                return _OVERFLOW
            seen.add(text)
        return text


def _plain(name: object) -> str:
    """The text of a name, which a class of the program's may give."""
    return str.replace(str.__getitem__(str(name), slice(_NAME_CHARACTERS)), PLACE_SEPARATOR, "?")
