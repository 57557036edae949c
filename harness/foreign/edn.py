"""Streaming parser for EDN (https://github.com/edn-format/edn) and for everything else that Clojure prints.

Values become Python values:

- nil, true and false: None, True and False
- integers (also ``12N``, hexadecimal ``0x1F``, octal ``017``, radix ``36rZZ``) and floats: int and float
- ``##Inf``, ``##-Inf``, ``##NaN``: float
- ratios such as ``1/3``: :class:`Fraction`, or int if the denominator is 1
- ``1.5M`` and ``1.50M``, which are equal: the same :class:`Decimal`
- strings: str
- vectors and lists, which are equal to each other: tuples
- others: :class:`Keyword`, :class:`Symbol`, :class:`Character`, :class:`Map`, :class:`Set`, :class:`Tagged`
- text that is none of these, such as a regular expression or ``#<Object@1f>``: :class:`Unreadable`

Commas are white space, ``;`` begins a comment, ``#_`` discards the next value, and metadata (``^{...} value``) is
dropped. ``#:ns{:a 1}`` is the map ``{:ns/a 1}``.

An unreadable value is an error only if a check needs it, because a history may hold any object in its ``:error``.
Brackets must match in any case: otherwise the ends of the values would be unknown.

``to_json`` turns values into canonical JSON: equal values have equal texts, different values have different texts.
``to_edn`` turns this JSON into EDN again, to show it to people.

A file holds a sequence of values, or one vector (or list) whose elements are the values. Each value is parsed from a
buffer that grows until the value fits, so memory is bounded by the largest value.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from assay.harness.foreign.source import MalformedError, TextPosition, advance, require_short, shorten, take_text

MAX_DEPTH: Final = 100
"""Maximum levels of nesting. The values of a history have a few; a hostile file could exhaust the stack."""
LONGEST_NUMBER: Final = 1000
"""Maximum characters of a number. Python rejects integers of more than 4300 digits, and parsing takes quadratic
time.
"""
_EXACT: Final = Context(prec=LONGEST_NUMBER, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Strips trailing zeros of a decimal, without rounding, because in Clojure 1.0M equals 1.00M (CLJ-1118)."""
_INSTANT: Final = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?)?)?)?"
    r"(?:Z|([-+])(\d\d):(\d\d))?",
    re.ASCII,
)
"""An instant as Clojure reads it. All fields but the year may be missing."""
_UUID: Final = re.compile(
    r"([0-9a-f]{1,8})-([0-9a-f]{1,4})-([0-9a-f]{1,4})-([0-9a-f]{1,4})-([0-9a-f]{1,12})", re.ASCII | re.IGNORECASE
)
"""A UUID as Java reads it: each part may lack zeros at its beginning."""
MAX_INTERNED: Final = 10_000
"""Maximum number of keywords and symbols that are interned. A history repeats few of them."""


@dataclass(frozen=True, eq=False)
class Keyword:
    """``:name``. There is one object for each name, so comparisons are as fast as those of numbers."""

    name: str

    def __repr__(self) -> str:
        return f":{self.name}"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Keyword) and other.name == self.name)

    def __hash__(self) -> int:
        return hash((Keyword, self.name))


@dataclass(frozen=True)
class Symbol:
    name: str


@dataclass(frozen=True)
class Character:
    text: str


@dataclass(frozen=True)
class Map:
    """Map with distinct keys, in the order of the file."""

    pairs: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class Set:
    """Set with distinct elements, in the order of the file."""

    elements: tuple[Any, ...]


@dataclass(frozen=True)
class Tagged:
    """``#tag value``."""

    tag: str
    value: Any


@dataclass(eq=False)
class Unreadable:
    """Text that is no value, with the reason and its position in the file."""

    text: str
    reason: str
    place: TextPosition = field(default_factory=lambda: TextPosition(1, 1))

    def __repr__(self) -> str:
        return f"Unreadable({self.text!r}, {self.reason!r})"


class _IncompleteValue(Exception):
    """The buffer ends inside a value."""


class _SyntaxError(Exception):
    """Syntax error at offset ``at`` of the buffer, after which the end of the value is unknown."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason


class _BadValue(Exception):
    """A value whose end is known, but whose text cannot be read. ``at``: offset of the error in the buffer."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason


START: Final = TextPosition(1, 1)
_BLANK: Final = re.compile(r"(?:[\s,]+|;[^\n]*(?:\n|\Z))*")
_TOKEN: Final = re.compile(
    r"""(?P<atom>[^\s,;"()\[\]{}\\#^@`~][^\s,;"()\[\]{}\\^@`~]*)
    |(?P<open>\#\{|[\[({])
    |(?P<close>[\])}])
    |"(?P<text>[^"\\]*(?:\\.[^"\\]*)*)"
    |(?P<discard>\#_)
    |(?P<metadata>\#?\^)
    |\#\#(?P<special>Inf|-Inf|NaN)(?=[\s,;"()\[\]{}\\]|\Z)
    |\#:(?P<namespace>:?[^\s,;"()\[\]{}\\^@`~]*)
    |\#"(?P<regex>[^"\\]*(?:\\.[^"\\]*)*)"
    |\#(?P<tag>[^\W\d_][\w.*+!\-?$%&=<>|'/]*)
    |\\(?P<char>u[0-9a-fA-F]{4}|o[0-3]?[0-7]{1,2}|newline|return|space|tab|formfeed|backspace|\S)(?=[\s,;"()\[\]{}\\]|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN: Final = re.compile(r"""[^;"()\[\]{}\\#^@`~]*""")
"""Text of words and blanks only. An ``#`` after it may belong to its last word."""
_MOST_DIGITS: Final = 19
"""Maximum digits of a number that needs no further look."""
_INTEGER: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(N?)\Z", re.ASCII)
_OTHER_INTEGER: Final = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0(?P<octal>[0-7]+)|(?P<radix>[1-9][0-9]?)[rR](?P<digits>[0-9A-Za-z]+))N?\Z",
    re.ASCII,
)
_RATIO: Final = re.compile(r"([+-]?[0-9]+)/([0-9]+)\Z", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]*|[0-9]+(?=[.eE]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(M?)\Z", re.ASCII)
_SPECIAL: Final = {"Inf": math.inf, "-Inf": -math.inf, "NaN": math.nan}
_SPECIAL_TEXTS: Final = {"Infinity": "##Inf", "-Infinity": "##-Inf", "NaN": "##NaN"}
_MAX_OPAQUE: Final = 100_000
"""Maximum characters of an object that old versions print as ``#<...>``."""
_KEYWORD: Final = re.compile(r":[\w.*+!\-?$%&=<>|'#/][\w.*+!\-?$%&=<>|'#/:]*\Z")
_SYMBOL: Final = re.compile(r"(?:/|[^\W\d]|[.*+!\-?$%&=<>|'_](?!\d))[\w.*+!\-?$%&=<>|'#/:]*\Z")
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "b": "\b", "f": "\f"}
_CLOSES: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_NAMED: Final = {
    "newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b",
}  # fmt: skip
_CHARACTER_NAMES: Final = {letter: name for name, letter in _NAMED.items()}
_WORDS: Final[dict[str, Any]] = {"nil": None, "true": True, "false": False}
_NOTHING: Final = object()
"""Result of parsing a discarded value."""


def parse_first(path: Path, text: str, place: TextPosition) -> tuple[Any, int]:
    """Parses the value at the beginning of ``text``, and returns it with its end offset.

    ``place`` is the position of ``text`` in the file.
    """
    return EdnReader(path, (), text, place).read_value()


class EdnReader:
    """Reads values from a text that comes in pieces; ``path`` is for errors.

    A list or vector at the beginning of the file usually holds all values. ``tuples``: a vector there that begins with
    a number or a keyword is the first value.

    Raises ``MalformedError`` if the end of a value is unknown, for example if a bracket is never closed.
    """

    def __init__(
        self, path: Path, pieces: Iterable[str], text: str = "", place: TextPosition = START, *, tuples: bool = False
    ) -> None:
        self._path = path
        self._takes_tuples = tuples
        self._pieces = iter(pieces)
        self._text = text
        self._at = 0
        self._place = place
        """Position in the file of the character at offset ``_placed_at`` of the buffer."""
        self._placed_at = 0
        self._ended = False
        self._atoms: dict[str, Any] = dict(_WORDS)
        self._unreadable: list[tuple[int, Unreadable]] = []

    @property
    def has_unreadable(self) -> bool:
        """Whether the last value that was read contains an :class:`Unreadable`."""
        return bool(self._unreadable)

    def iterate_values(self) -> Iterator[tuple[TextPosition, Any]]:
        """Yields each value of the file, or each element of its only vector, with its place."""
        if not self._skip():
            return
        outer = self._enter_outer()
        while True:
            more = self._skip()
            if outer is not None and more and self._text[self._at] == outer[1]:
                self._at += 1
                self._require_end()
                return
            if not more:
                if outer is not None:
                    raise MalformedError(
                        self._path, outer[0], f"this {outer[2]} is never closed: the file is cut short"
                    )
                return
            place = self._locate(self._at)
            value = self._parse_next()
            if value is not _NOTHING:
                yield place, value

    def read_value(self) -> tuple[Any, int]:
        """Returns the next value, which must exist, and the offset after it."""
        place = self._locate(self._at)
        while self._skip():
            value = self._parse_next()
            if value is not _NOTHING:
                return value, self._at
        raise MalformedError(self._path, place, "there should be a value here")

    def _enter_outer(self) -> tuple[TextPosition, str, str] | None:
        """Enters the vector or list around all values, if there is one. Returns its position, closer and kind."""
        opener = self._text[self._at]
        if opener not in "[(":
            return None
        place = self._locate(self._at)
        self._at += 1
        if self._takes_tuples and opener == "[" and self._begins_operation():
            self._at -= 1
            return None
        return place, _CLOSES[opener], "vector" if opener == "[" else "list"

    def _begins_operation(self) -> bool:
        """Returns whether the next token is a number or a keyword. Reads a further piece only if the buffer has only
        blanks after the bracket."""
        match = _BLANK.match(self._text, self._at)
        end = match.end() if match is not None else self._at
        while end >= len(self._text):
            self._at -= 1  # keeps the bracket in the buffer
            grown = self._grow(len(self._text))
            self._at += 1
            if not grown:
                return False
            match = _BLANK.match(self._text, self._at)
            end = match.end() if match is not None else self._at
        return self._text[end] == ":" or self._text[end].isdigit()

    def _require_end(self) -> None:
        """Raises ``MalformedError`` if another value follows."""
        while self._skip():
            place = self._locate(self._at)
            if self._parse_next() is not _NOTHING:
                raise MalformedError(self._path, place, "there is something after the end of the history")

    def _skip(self) -> bool:
        """Skips to the next token. Returns False at the end of the file."""
        in_comment = False
        while True:
            if in_comment:
                end = self._text.find("\n", self._at)
                in_comment = end < 0
                self._at = len(self._text) if in_comment else end
            match = _BLANK.match(self._text, self._at)
            begin, self._at = self._at, match.end() if match is not None else self._at
            if self._at < len(self._text):
                return True
            # A comment may continue in the next piece, and is skipped there as well.
            last = self._text.rfind("\n", begin) + 1
            in_comment = in_comment or self._text.find(";", max(begin, last)) >= 0
            if not self._grow():
                return False

    def _parse_next(self) -> Any:
        while True:
            try:
                self._unreadable.clear()
                value, self._at = self._parse(self._at, 0)
                if self._unreadable:
                    self._place_unreadable()
                return value
            except _IncompleteValue:
                if self._grow(len(self._text) - self._at):  # doubles the text, so that parsing again stays linear
                    continue
                self._ended = True
            except _SyntaxError as error:
                raise MalformedError(self._path, self._locate(error.at), error.reason) from error

    def _place_unreadable(self) -> None:
        place, at = self._place, self._placed_at
        for offset, value in sorted(self._unreadable, key=lambda one: one[0]):
            place, at = advance(place, self._text[at:offset]), offset
            value.place = place

    def _reject(self, at: int, text: str, reason: str) -> Unreadable:
        value = Unreadable(text if len(text) <= LONGEST_NUMBER else text[:LONGEST_NUMBER] + "…", reason)
        self._unreadable.append((at, value))
        return value

    def _grow(self, minimum: int = 0) -> bool:
        """Drops the parsed text, and appends more than ``minimum`` characters. Returns False at the end of the file."""
        require_short(self._path, self._locate(self._at), len(self._text) - self._at)
        added = take_text(self._pieces, minimum)
        if not added:
            self._ended = True
            return False
        self._place, self._placed_at = self._locate(self._at), 0
        self._text = self._text[self._at :] + added
        self._at = 0
        return True

    def _locate(self, at: int) -> TextPosition:
        """Returns the position of an offset in the file. Offsets must not decrease, so each line is counted once."""
        if at < self._placed_at:
            raise AssertionError(f"offset {at} lies before {self._placed_at}")
        place = advance(self._place, self._text[self._placed_at : at])
        self._place, self._placed_at = place, at
        return place

    def _parse(self, at: int, depth: int) -> tuple[Any, int]:
        """Parses the value at an offset of the buffer, and returns it with its end offset."""
        text = self._text
        match = _TOKEN.match(text, at)
        if match is None:
            return self._read_bad_token(at)
        end = match.end()
        kind = match.lastgroup
        if kind == "open":
            return self._parse_collection(match.group(), at, end, depth + 1)
        if end == len(text) and kind != "text" and kind != "close" and not self._ended:
            raise _IncompleteValue
        if kind == "atom":
            word = match.group()
            known = self._atoms.get(word, _NOTHING)
            if known is not _NOTHING:
                return known, end
        try:
            return self._parse_token(match, str(kind), at, depth)
        except _BadValue as error:
            return self._reject(error.at, match.group(), error.reason), end

    def _parse_token(self, match: re.Match[str], kind: str, at: int, depth: int) -> tuple[Any, int]:
        """Parses a token that is no bracket, with the values that belong to it. Raises ``_BadValue``."""
        end, body = match.end(), match.group(kind)
        match kind:
            case "atom":
                return self._parse_atom(body, at), end
            case "text":
                return (_unescape(body, at + 1) if "\\" in body else body), end
            case "discard":
                _, end = self._parse_operand(end, depth + 1, at, "#_ has no value after it to discard")
                return _NOTHING, end
            case "metadata":
                _, end = self._parse_operand(end, depth + 1, at, "^ has no metadata after it")
                return self._parse_operand(end, depth + 1, at, "the metadata after ^ belongs to no value")
            case "special":
                return _SPECIAL[body], end
            case "namespace":
                value, end = self._parse_operand(end, depth + 1, at, f"the namespace {shorten(body)} has no map")
                if not isinstance(value, Map):
                    return self._reject(at, match.group(), f"{shorten(match.group())} has no map after it"), end
                qualified = _qualify(value, body.lstrip(":"))
                if len({key for key, _ in qualified.pairs if isinstance(key, Keyword)}) < sum(
                    isinstance(key, Keyword) for key, _ in qualified.pairs
                ):
                    return self._reject(at, match.group(), "the same key is in it twice"), end
                return qualified, end
            case "regex":
                raise _BadValue(at, f"{shorten(match.group())} is a regular expression, and no value")
            case "tag":
                value, end = self._parse_operand(end, depth + 1, at, f"the tag {shorten(match.group())} has no value")
                return Tagged(body, value), end
            case "char":
                return _parse_character(body, at), end
        raise _SyntaxError(at, f"{shorten(match.group())} closes nothing")

    def _read_bad_token(self, at: int) -> tuple[Unreadable, int]:
        """Reads text that is no token up to the next blank or bracket. Raises ``_SyntaxError`` if it has no end."""
        text = self._text
        if text.startswith(('"', '#"'), at):
            if not self._ended:
                raise _IncompleteValue
            raise _SyntaxError(at, "this string is never closed: the file is cut short")
        if text.startswith("#<", at):
            return self._read_opaque(at)
        end = at + (2 if text[at] == "\\" else 1)
        while end < len(text) and not text[end].isspace() and text[end] not in ',;"()[]{}':
            end += 1
        if end >= len(text) and not self._ended:
            raise _IncompleteValue
        return self._reject(at, text[at:end], f"{shorten(text[at:end])} is no EDN token"), end

    def _read_opaque(self, at: int) -> tuple[Unreadable, int]:
        """Reads ``#<Object ...>`` up to the bracket that closes it."""
        depth, end, last = 0, at, min(len(self._text), at + _MAX_OPAQUE)
        while end < last:
            letter = self._text[end]
            end += 1
            depth += (letter == "<") - (letter == ">")
            if letter == ">" and not depth:
                return self._reject(at, self._text[at:end], f"{shorten(self._text[at:end])} is an object"), end
        if end == len(self._text) and not self._ended:
            raise _IncompleteValue
        raise _SyntaxError(at, f"the object {shorten(self._text[at:end])} is never closed by >")

    def _skip_blank(self, at: int) -> int:
        match = _BLANK.match(self._text, at)
        end = match.end() if match is not None else at
        if end >= len(self._text) and not self._ended:
            raise _IncompleteValue
        return end

    def _parse_operand(self, at: int, depth: int, opened: int, missing: str) -> tuple[Any, int]:
        """Returns the next value that is not discarded. ``missing`` is the error if there is none."""
        if depth > MAX_DEPTH:
            raise _SyntaxError(opened, f"nested more than {MAX_DEPTH} levels deep")
        while True:
            at = self._skip_blank(at)
            if at >= len(self._text) or self._text[at] in ")]}":
                raise _SyntaxError(opened, missing)
            value, at = self._parse(at, depth)
            if value is not _NOTHING:
                return value, at

    def _parse_collection(self, opener: str, opened: int, at: int, depth: int) -> tuple[Any, int]:
        if depth > MAX_DEPTH:
            raise _SyntaxError(opened, f"nested more than {MAX_DEPTH} levels deep")
        closer, text = _CLOSES[opener], self._text
        elements: list[Any] = []
        tokens_until = at
        """The end of text that is parsed token by token, because one word of it is unusual."""
        while True:
            words = None
            if at >= tokens_until:
                words, end = self._read_words(at)
                if words is None:
                    tokens_until = end
                else:
                    elements += words
                    at = end
            if words is None or text[at] == ";":
                at = self._skip_blank(at)
            if at >= len(text):
                raise _SyntaxError(opened, f"this {shorten(opener)} is never closed: the file is cut short")
            letter = text[at]
            if letter == closer:
                try:
                    return self._make_collection(opener, opened, elements), at + 1
                except _BadValue as error:
                    return self._reject(opened, text[opened : at + 1], error.reason), at + 1
            if letter in ")]}":
                raise _SyntaxError(at, f"{shorten(letter)} where {shorten(closer)} should close {shorten(opener)}")
            if letter in "[({":
                value, at = self._parse_collection(letter, at, at + 1, depth + 1)
            else:
                value, at = self._parse(at, depth)
            if value is not _NOTHING:
                elements.append(value)

    def _read_words(self, at: int) -> tuple[list[Any] | None, int]:
        """Reads keywords, symbols and numbers up to the next token of another kind, and returns it with its offset.

        Most tokens of a history are such words, and it is faster to split their text than to match each. None: one of
        the words must be parsed by itself.
        """
        text, known, words = self._text, self._atoms, list[Any]()
        match = _PLAIN.match(text, at)
        end = match.end() if match is not None else at
        if end >= len(text):
            if not self._ended:
                raise _IncompleteValue
            return None, end
        if text[end] == "#" and end > at and not (text[end - 1].isspace() or text[end - 1] == ","):
            return None, end
        try:
            for word in text[at:end].replace(",", " ").split():
                value = known.get(word, _NOTHING)
                if value is _NOTHING:
                    plain = word.isdigit() and word.isascii() and word[0] != "0" and len(word) <= _MOST_DIGITS
                    value = int(word) if plain else self._parse_atom(word, at)
                words.append(value)
        except _BadValue:
            return None, end
        return words, end

    def _make_collection(self, opener: str, opened: int, elements: list[Any]) -> Any:
        if opener == "{":
            if len(elements) % 2:
                raise _BadValue(opened, f"this map has {len(elements)} forms: a key has no value")
            keys = elements[::2]
            _require_distinct(keys, opened, "key")
            return Map(tuple(zip(keys, elements[1::2], strict=True)))
        if opener == "#{":
            _require_distinct(elements, opened, "element")
            return Set(tuple(elements))
        return tuple(elements)

    def _parse_atom(self, word: str, at: int) -> Any:
        first = word[0]
        if first.isdigit() or (first in "+-" and len(word) > 1 and word[1].isdigit()):
            return _parse_number(word, at)
        value: Any
        if first == ":" and _KEYWORD.match(word):
            value = Keyword(word[1:])
        elif _SYMBOL.match(word):
            value = Symbol(word)
        else:
            raise _BadValue(at, f"{shorten(word)} is no EDN token")
        if len(self._atoms) < MAX_INTERNED:
            self._atoms[word] = value
        return value


def _parse_number(word: str, at: int) -> int | float | Decimal | Fraction:
    if len(word) > LONGEST_NUMBER:
        raise _BadValue(at, f"the number {shorten(word)} has more than {LONGEST_NUMBER} digits")
    if match := _INTEGER.match(word):
        return int(word.removesuffix("N") if match.group(1) else word)
    if match := _FLOAT.match(word):
        try:
            value = Decimal(word[:-1]).normalize(_EXACT) if match.group(1) else float(word)
        except InvalidOperation as error:
            raise _BadValue(at, f"the number {shorten(word)} is too large") from error
        if not value:
            return Decimal(0) if match.group(1) else 0.0  # -0.0 is equal to 0.0
        return value
    if match := _OTHER_INTEGER.match(word):
        base = 16 if match["hex"] else 8 if match["octal"] else int(match["radix"])
        try:
            return int(match["sign"] + (match["hex"] or match["octal"] or match["digits"]), base)
        except ValueError as error:
            raise _BadValue(at, f"{shorten(word)} has digits beyond its base, or a base beyond 36") from error
    if (match := _RATIO.match(word)) and int(match[2]):
        ratio = Fraction(int(match[1]), int(match[2]))
        return ratio.numerator if ratio.denominator == 1 else ratio
    raise _BadValue(at, f"{shorten(word)} is no EDN number")


def _parse_character(name: str, at: int) -> Character:
    if len(name) == 1:
        return Character(name)
    code = _NAMED.get(name) or chr(int(name[1:], 16 if name[0] == "u" else 8))
    if "\ud800" <= code <= "\udfff":
        raise _BadValue(at, f"{shorten(chr(92) + name)} is half of a character")
    return Character(code)


def _qualify(named: Map, namespace: str) -> Map:
    """Returns the map of ``#:namespace{...}``: keys without a namespace get it, and ``:_/key`` becomes ``:key``."""
    return Map(tuple((_qualify_key(key, namespace), value) for key, value in named.pairs))


def _qualify_key(key: Any, namespace: str) -> Any:
    if not isinstance(key, Keyword | Symbol):
        return key
    name = key.name.removeprefix("_/") if "/" in key.name else f"{namespace}/{key.name}"
    return type(key)(name)


def _unescape(body: str, at: int) -> str:
    def unescape(match: re.Match[str]) -> str:
        escape = match.group()[1:]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPED:
            raise _BadValue(at + match.start(), f"{shorten(match.group())} is no escape that EDN knows")
        return _ESCAPED[escape]

    text = _ESCAPE.sub(unescape, body)
    try:
        # Java writes characters beyond 16 bits as two surrogates; this joins them.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise _BadValue(at, "an escape in this string is half of a character") from error


def _require_distinct(values: list[Any], opened: int, what: str) -> None:
    # Python considers 1, 1.0 and true equal; EDN does not.
    names = {value.name for value in values if type(value) is Keyword}
    others = {(type(value), repr(value)) for value in values if type(value) is not Keyword}
    if len(names) + len(others) < len(values):
        raise _BadValue(opened, f"the same {what} is in it twice")


def to_json(value: Any) -> str:
    """Returns a value as canonical JSON.

    Numbers, strings, booleans and nil become those of JSON. Vectors and lists become arrays. Other values become an
    object with one entry that names the type: ``{"keyword":"a"}``, ``{"map":[[k,v]]}``, ``{"set":[1,2]}``.
    """
    if value is None:
        return "null"
    if type(value) is int and -(2**63) <= value < 2**63:
        return str(value)
    return _dump(_to_plain(value))


def to_json_array(collection: tuple[Any, ...] | Set) -> str:
    """Returns the elements of a vector, list or set as a JSON array; those of a set are sorted."""
    if isinstance(collection, Set):
        return _dump(_sort_elements(collection))
    return to_json(collection)


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _dump(plain: Any) -> str:
    return _ENCODER.encode(plain)


def to_edn(text: str) -> str:
    """Returns the EDN of what ``to_json`` made, to show it to readers."""
    return _format(json.loads(text))


def _format(plain: Any) -> str:
    match plain:
        case None:
            return "nil"
        case [*elements]:
            return f"[{' '.join(map(_format, elements))}]"
        case {"set": [*elements]}:
            return f"#{{{' '.join(map(_format, elements))}}}"
        case {"keyword": str(name)}:
            return f":{name}"
        case {"symbol": str(name)}:
            return name
        case {"char": str(letter)}:
            return f"\\{_CHARACTER_NAMES.get(letter, letter)}"
        case {"integer": str(digits)}:
            return f"{digits}N"
        case {"decimal": str(digits)}:
            return f"{digits}M"
        case {"ratio": str(ratio)}:
            return ratio
        case {"float": str(name)}:
            return _SPECIAL_TEXTS[name]
        case {"unreadable": str(text)}:
            return text
        case {"map": [*pairs]}:
            return f"{{{', '.join(f'{_format(key)} {_format(value)}' for key, value in pairs)}}}"
        case {**tagged} if tagged:
            return " ".join(f"{tag} {_format(value)}" for tag, value in tagged.items())
    return json.dumps(plain, ensure_ascii=False)


def to_name(value: Any) -> str:
    """Returns a value as a name: a string itself, a keyword without its colon, everything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Keyword | Symbol):
        return value.name
    if isinstance(value, Unreadable):
        return value.text
    return to_json(value)


def find_unreadable(value: Any) -> Unreadable | None:
    """Returns the first unreadable part of a value, if there is one."""
    match value:
        case Unreadable():
            return value
        case tuple() | Set():
            parts = value if isinstance(value, tuple) else value.elements
        case Map(pairs):
            parts = tuple(part for pair in pairs for part in pair)
        case Tagged(_, inner):
            parts = (inner,)
        case _:
            return None
    return next((found for part in parts if (found := find_unreadable(part)) is not None), None)


def to_source(value: Any) -> str:
    """Returns a value in the notation of EDN, shortened for an error."""
    return shorten(to_edn(to_json(value)))


def _to_plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is int and -(2**63) <= value < 2**63:
        return value
    if kind is tuple:
        return [_to_plain(element) for element in value]
    match value:
        case Set():
            return {"set": _sort_elements(value)}
        case Keyword(name):
            return {"keyword": name}
        case Symbol(name):
            return {"symbol": name}
        case Character(text):
            return {"char": text}
        case int() if type(value) is int and not -(2**63) <= value < 2**63:
            return {"integer": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case Fraction():
            return {"ratio": str(value)}
        case float() if not math.isfinite(value):
            return {"float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
        case Unreadable(text):
            return {"unreadable": text}
        case Map(pairs):
            return {"map": sorted(([_to_plain(key), _to_plain(one)] for key, one in pairs), key=_sort_key)}
        case Tagged("inst", str(text)):
            return {"#inst": _normalize_instant(text)}
        case Tagged("uuid", str(text)):
            return {"#uuid": _normalize_uuid(text)}
        case Tagged(tag, inner):
            return {f"#{tag}": _to_plain(inner)}
        case _:
            return value


def _normalize_instant(text: str) -> str:
    """Returns the spelling of an instant that Clojure prints, with as many digits of a second as are needed.

    Text that denotes no instant is returned as it is.
    """
    if (match := _INSTANT.fullmatch(text)) is None:
        return text
    *fields, fraction, sign, hours, minutes = match.groups()
    numbers = [int(field or least) for field, least in zip(fields, (1, 1, 1, 0, 0, 0), strict=True)]
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        local = datetime(*numbers)  # type: ignore[arg-type]  # noqa: DTZ001 - the offset is subtracted below
        instant = local + offset if sign == "-" else local - offset
    except (ValueError, OverflowError):
        return text
    return f"{instant.isoformat()}.{(fraction or '').rstrip('0').ljust(3, '0')}-00:00"


def _normalize_uuid(text: str) -> str:
    """Returns the spelling of a UUID that Clojure prints. Text that denotes none is returned as it is."""
    if (match := _UUID.fullmatch(text)) is None:
        return text
    return "-".join(
        part.lower().rjust(width, "0") for part, width in zip(match.groups(), (8, 4, 4, 4, 12), strict=True)
    )


def _sort_elements(value: Set) -> list[Any]:
    return sorted(map(_to_plain, value.elements), key=_sort_key)


def _sort_key(plain: Any) -> tuple[bool, int | float, str]:
    """Sorts numbers first, by size."""
    number = type(plain) in (int, float)
    return not number, plain if number else 0, json.dumps(plain)
