"""Keys of operations: next to the value, or inside it.

Jepsen's ``independent`` turns a test of one register into a test of many: the value ``v`` becomes the tuple ``[k v]``.
Some versions print this tuple with a tag. Most print a plain vector, which looks like a compare-and-set ``[from to]``.
``AUTO`` decides by the first call of a client:

- It has a ``:key``: all calls must have one, and values are taken as they are.
- Its value is tagged as a tuple, or is a vector of two: every value is ``[k v]``. For a compare-and-set, the second
  element must be a vector of two as well.
- Otherwise there is one object without a key.

In some workloads, a plain value may be a vector of two itself. There, every value is ``[k v]`` only if the value of the
first call is tagged, or if this value does not fit its operation and its second element does.

The operations of a lock may have any value, so both readings would fit: one lock, or a lock for each key. A lock that
two clients hold would pass as two locks. So a first value without a tag that is a vector of two is an error there.

For a later call that does not fit, an error asks the user for ``TUPLES`` or ``NONE``.
"""

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from assay.harness.foreign.edn import Keyword, Map, Tagged, to_edn, to_json, to_name, to_source
from assay.harness.foreign.entry import NO_KEY, Entry
from assay.harness.foreign.source import MalformedError, TextPosition

CAS: Final = "cas"
TUPLE_TAGS: Final = ("jepsen.independent.tuple", "clojure.lang.mapentry")
"""The tags of ``#jepsen.independent.Tuple[k v]`` and ``#clojure.lang.MapEntry[k v]``, in lower case."""
_TUPLE_FIELDS: Final = ("key", "value")
"""The fields of a tuple that is printed as a record, ``#jepsen.independent.Tuple{:key k, :value v}``."""


class KeyMode(enum.StrEnum):
    """Location of keys: detected automatically, in every value as ``[k v]``, or only in ``:key``."""

    AUTO = "auto"
    TUPLES = "tuples"
    NONE = "none"


class KeySplitter:
    """Splits values into key and value, consistently for a whole file."""

    def __init__(
        self,
        path: Path,
        keys: KeyMode,
        may_be_pair: Callable[[str], bool],
        fits: Callable[[str, Any], bool] | None = None,
    ) -> None:
        """``may_be_pair(f)``: whether a vector of two may be a value of an operation as well as a key with a value.

        ``fits(f, value)``: whether a value fits an operation; given only if plain values may be vectors of two.
        """
        self._path = path
        self._mode = keys
        self._may_be_pair = may_be_pair
        self._fits = fits
        self._tuples: bool | None = {KeyMode.AUTO: None, KeyMode.TUPLES: True, KeyMode.NONE: False}[keys]
        """Whether values are ``[k v]``; None until the first call decides."""
        self._has_field: bool | None = None
        """Whether the first call has a ``:key``; None before it."""
        self._first = TextPosition(1, 1)
        """The position of the first call."""
        self._guessed = False
        """Whether the first call decided without a tag that values are ``[k v]``."""
        self._names: dict[str, str] = {}
        """The exact key of each printed name, to reject two keys of one name."""

    def split_call(self, entry: Entry, f: str) -> tuple[str | None, Any]:
        """Returns (key, argument) of a call of ``f``. Raises ``MalformedError`` if it differs from earlier calls."""
        field = entry.key is not NO_KEY
        if self._has_field is None:
            self._has_field, self._first = field, entry.place
            if self._tuples is None:
                self._tuples = not field and self._begins_with_tuple(f, entry.value)
                self._guessed = self._tuples and _is_pair(entry.value)
                if self._guessed and self._may_be_pair(f):
                    self._reject_guess(entry)
        if field != self._has_field:
            self._fail(entry, "has a :key" if field else "has no :key", "--keys=none, or remove calls without a :key")
        if field:
            return self._make_name(entry, entry.key), entry.value
        if not self._tuples:
            if self._mode is KeyMode.AUTO and self._fits is None and _looks_like_tuple(f, entry.value):
                self._fail(entry, f"has the tuple {to_source(entry.value)}", "--keys=tuples, or --keys=none")
            return None, entry.value
        pair = remove_tag(entry.value)
        if not _is_pair(pair) or (f == CAS and not _is_pair(pair[1]) and self._mode is KeyMode.AUTO):
            self._fail(entry, f"has {to_source(entry.value)}, no tuple of key and value", "--keys=none")
        return self._make_name(entry, pair[0]), pair[1]

    @property
    def guessed_keys(self) -> int:
        """The number of keys, if the first call decided without a tag that values are ``[k v]``; otherwise 0."""
        return len(self._names) if self._guessed else 0

    def _reject_guess(self, entry: Entry) -> None:
        raise MalformedError(
            self._path,
            entry.place,
            f"{to_source(entry.value)} may be a value of one lock, or the key of a lock with a value; use --keys=none "
            "for one lock, or --keys=tuples for a lock for each key",
        )

    def _begins_with_tuple(self, f: str, value: Any) -> bool:
        if self._fits is None:
            return _is_tuple(f, value)
        pair = remove_tag(value)
        return _is_pair(pair) and (pair is not value or (not self._fits(f, value) and self._fits(f, pair[1])))

    def split_completion(self, entry: Entry, key: str | None) -> Any:
        """Returns the value of a completion for ``key``. Raises ``MalformedError`` if it names another key."""
        if self._has_field:
            if entry.key is not NO_KEY:
                self._require_same_key(entry, key, entry.key)
            return entry.value
        pair = remove_tag(entry.value)
        if not self._tuples:
            return entry.value
        if not _is_pair(pair):
            if entry.type == "ok":
                self._fail(entry, f"has {to_source(entry.value)}, no tuple of key and value", "--keys=none")
            return entry.value  # the name of an error instead of the value
        self._require_same_key(entry, key, pair[0])
        return pair[1]

    def _require_same_key(self, entry: Entry, key: str | None, other: Any) -> None:
        if self._make_name(entry, other) != key:
            raise MalformedError(
                self._path,
                entry.place,
                f"this operation was called on key {key}, and ends on key {to_name(other)}; if values have another "
                "meaning, use --keys=none",
            )

    def _make_name(self, entry: Entry, key: Any) -> str:
        name, exact = to_name(key), to_json(key)
        if self._names.setdefault(name, exact) != exact:
            both = f"{to_edn(self._names[name])} and {to_edn(exact)}"
            raise MalformedError(self._path, entry.place, f"the keys {both} would have one name, {name}")
        return name

    def _fail(self, entry: Entry, what: str, instead: str) -> None:
        raise MalformedError(
            self._path,
            entry.place,
            f"this operation {what}, unlike the first one, at line {self._first.line}; if values have another meaning, "
            f"use {instead}",
        )


def remove_tag(value: Any) -> Any:
    """Returns the pair of key and value that some versions print with a tag; any other value as it is."""
    if not isinstance(value, Tagged) or value.tag.lower() not in TUPLE_TAGS:
        return value
    if isinstance(value.value, Map):
        fields = {key.name: one for key, one in value.value.pairs if isinstance(key, Keyword)}
        return tuple(fields[name] for name in _TUPLE_FIELDS) if fields.keys() == {*_TUPLE_FIELDS} else value
    return value.value


def _is_pair(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2


def _is_tuple(f: str, value: Any) -> bool:
    """Returns whether the first value of a file is a tuple of key and value."""
    pair = remove_tag(value)
    return _is_pair(pair) and (pair is not value or f != CAS or _is_pair(pair[1]))


def _looks_like_tuple(f: str, value: Any) -> bool:
    """Returns whether a later value is probably a tuple of key and value, although the first value was none."""
    pair = remove_tag(value)
    return _is_pair(pair) and (pair is not value or pair[1] is None or (f == CAS and _is_pair(pair[1])))
