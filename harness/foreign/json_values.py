"""Reader for JSON: one array of values, or one value after another, as in JSON lines.

Values get the types of the module ``edn``: an array becomes a tuple, and an object a :class:`Map`. A string such as
``":ok"`` becomes a keyword, because some converters from EDN keep the colon. Numbers with too many digits, strings with
half a surrogate pair and objects with a key twice become :class:`Unreadable`: an error only if a check reads the value.

Each value is decoded from a buffer that grows until the value fits, so memory is bounded by the largest value.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from assay.harness.foreign.edn import LONGEST_NUMBER, MAX_DEPTH, Keyword, Map, Unreadable, to_json
from assay.harness.foreign.source import MalformedError, TextPosition, advance, require_short, shorten, take_text

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_KEYWORD: Final = re.compile(r":[A-Za-z*+!?<>=_.-][\w.*+!?<>=/-]*\Z")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_UNFINISHED: Final = 16
"""Number of characters at the end of the buffer in which an error may come from a token that is cut off. More text is
then read first."""
_CONSTANTS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class JsonReader:
    """Reads values from a text that comes in pieces; ``path`` is for errors.

    Raises ``MalformedError`` for text that is no JSON.
    """

    def __init__(self, path: Path, pieces: Iterable[str]) -> None:
        self._path = path
        self._pieces = iter(pieces)
        self._text = ""
        self._at = 0
        """Offset in the buffer ``_text`` of the next character."""
        self._place = TextPosition(1, 1)
        """Position in the file of the character at offset ``_placed_at`` of the buffer."""
        self._placed_at = 0
        self._ended = False
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_Pairs,
            parse_int=_parse_integer,
            parse_float=_parse_float,
            parse_constant=_CONSTANTS.get,
        )
        self._value_place = TextPosition(1, 1)
        """Position in the file of the last value."""
        self.has_unreadable = False
        """Whether the last value that was read contains an :class:`Unreadable`."""

    def iterate_values(self) -> Iterator[tuple[TextPosition, Any]]:
        """Yields each value of the file, or each element of its only array, with its place."""
        if not self._skip():
            return
        opened = self._locate()
        if self._text[self._at] != "[" or self._begins_operation():
            while self._skip():
                yield self._read_value()
            return
        self._at += 1
        closed = self._find_next(opened) == "]"
        while not closed:
            yield self._read_value()
            closed = self._find_next(opened, after_element=True) == "]"
            if not closed:
                self._at += 1
                self._find_next(opened)
        self._at += 1
        if self._skip():
            raise MalformedError(
                self._path, self._locate(), "there is something after the end of the array; a file is one array"
            )

    def _begins_operation(self) -> bool:
        """Returns whether the array is an operation such as ``[0, "invoke", "read", null]``."""
        self._at += 1
        more = self._skip(keep=1)
        letter = self._text[self._at] if more else "]"
        self._at = self._text.rindex("[", 0, self._at)
        return letter not in "[{]"

    def _find_next(self, opened: TextPosition, *, after_element: bool = False) -> str:
        """Skips blanks in the array that was ``opened`` there, and returns the next character.

        With ``after_element``, any character but a comma or ] is an error.
        """
        if not self._skip():
            raise MalformedError(self._path, opened, "this array is never closed: the file is cut short")
        letter = self._text[self._at]
        if after_element and letter not in ",]":
            raise MalformedError(
                self._path, self._locate(), f"{shorten(letter)} where a comma or ] should follow an element"
            )
        return letter

    def _skip(self, keep: int = 0) -> bool:
        """Skips blanks. Returns False at the end of the file. The buffer keeps ``keep`` characters before them."""
        begin = self._at
        while True:
            match = _BLANK.match(self._text, self._at)
            end = match.end() if match is not None else self._at
            if end < len(self._text):
                self._at = end
                return True
            if not keep:
                self._at = begin = end
            self._at = begin - keep
            grown = self._grow()
            begin = self._at = self._at + keep
            if not grown:
                return False

    def _read_value(self) -> tuple[TextPosition, Any]:
        place = self._locate()
        while True:
            try:
                raw, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _UNFINISHED
                if unfinished and self._grow(len(self._text) - self._at):
                    continue
                self._fail(error)
            except RecursionError as error:
                raise MalformedError(self._path, place, f"nested more than {MAX_DEPTH} levels deep") from error
            if end == len(self._text) and not isinstance(raw, _Pairs | list) and self._grow():
                continue
            source = self._text[self._at : end]
            self.has_unreadable, self._value_place = False, place
            suspicious = "\\u" in source and _SURROGATE.search(source) is not None
            try:
                value = self._convert(raw, 0, suspicious)
            except RecursionError as error:
                raise MalformedError(self._path, place, f"nested more than {MAX_DEPTH} levels deep") from error
            self._at = end
            return place, value

    def _fail(self, error: json.JSONDecodeError) -> None:
        self._at = error.pos
        if error.pos >= len(self._text.rstrip()) or error.msg.startswith("Unterminated"):
            raise MalformedError(self._path, self._locate(), "the file is cut short inside a value") from error
        rest = self._text[error.pos :].split("\n", 1)[0]
        raise MalformedError(
            self._path, self._locate(), f"{shorten(rest)} is no JSON here: {error.msg.lower()}"
        ) from error

    def _grow(self, minimum: int = 0) -> bool:
        """Drops the decoded text, and appends more than ``minimum`` characters. Returns False at the file's end."""
        require_short(self._path, self._locate(), len(self._text) - self._at)
        added = take_text(self._pieces, minimum)
        if not added:
            return False
        self._locate()
        self._text, self._at, self._placed_at = self._text[self._at :] + added, 0, 0
        return True

    def _locate(self) -> TextPosition:
        """Returns the position of the current offset in the file."""
        if self._at > self._placed_at:
            self._place = advance(self._place, self._text[self._placed_at : self._at])
            self._placed_at = self._at
        return self._place

    def _convert(self, raw: Any, depth: int, suspicious: bool) -> Any:
        """Converts a decoded value. ``suspicious``: its strings may have half of a surrogate pair."""
        if type(raw) is str:
            if suspicious and any("\ud800" <= letter <= "\udfff" for letter in raw):
                return self._reject("", "a string has half of a character")
            return Keyword(raw[1:]) if raw[:1] == ":" and _KEYWORD.match(raw) else raw
        if type(raw) is not list and type(raw) is not _Pairs:
            return self._reject(raw.text, raw.reason) if type(raw) is Unreadable else raw
        if depth >= MAX_DEPTH:
            raise RecursionError
        if type(raw) is list:
            return tuple([self._convert(one, depth + 1, suspicious) for one in raw])
        pairs = [
            (self._convert(key, depth + 1, suspicious), self._convert(one, depth + 1, suspicious)) for key, one in raw
        ]
        if len({to_json(key) for key, _ in pairs}) < len(pairs):
            return self._reject("{...}", "an object has the same key twice")
        return Map(tuple(pairs))

    def _reject(self, text: str, reason: str) -> Unreadable:
        self.has_unreadable = True
        return Unreadable(text, reason, self._value_place)


class _Pairs(list[tuple[str, Any]]):
    """The entries of an object."""


def _parse_integer(digits: str) -> int | Unreadable:
    if len(digits) > LONGEST_NUMBER:
        return Unreadable(
            digits[:LONGEST_NUMBER], f"the number {shorten(digits)} has more than {LONGEST_NUMBER} digits"
        )
    return int(digits)


def _parse_float(digits: str) -> float:
    return float(digits) or 0.0  # -0.0 is equal to 0.0
