"""Declarations of messages: each is a table of wire types.

A message is a dataclass whose field types are wire types. A class describes all versions of its message::

    @message
    class FetchPartition:
        partition: Int32
        offset: Int64
        max_bytes: Int32

    @request(key=1, versions=(0, 3))
    class FetchRequest(Request[FetchResponse]):
        replica_id: Int32
        max_bytes: Int32 = wire(since=3, default=2**31 - 1)
        topics: list[FetchTopic]

- The base ``Request[R]`` tells the type checker and the API table the type of the response.
- Fields are keyword-only. Their order is the order on the wire.
- A field that some version lacks has a default. Decoding that version yields the default; encoding omits the field.

Messages are slotted dataclasses. They are not frozen, because a frozen dataclass takes three times as long to create,
and thousands are created per second in one process. By convention a message does not change after its creation.

:mod:`assay.system_under_test.protocol.compiler` turns a table into code.

Source of the types: "A Guide To The Kafka Protocol" and ``org.apache.kafka.common.protocol.types`` of 0.10.2. All
numbers are big-endian.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from assay.system_under_test.runtime import Slice

T = TypeVar("T")
R = TypeVar("R")

Records = bytes | Slice
"""A field of records: bytes if it was decoded. A field to encode may also be a slice of a log file, which is sent from
the disk and not read into memory."""

_VERSIONS = "versions"


class ProtocolError(ValueError):
    """Raised for bytes that are not a valid message, or for a value that does not fit its wire type."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number of fixed width; ``code`` is its letter in :mod:`struct`."""

    code: str
    size: int


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 text after a 16-bit length. Length -1 means null."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes after a 32-bit length. Length -1 means null."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class RecordsType:
    """A message set after a 32-bit length in bytes. Null, which 0.10.2 accepts, is decoded as empty."""


@dataclass(frozen=True, slots=True)
class Array:
    """Elements after a 32-bit count. Count -1 means null. The element is a wire type or a message class."""

    element: WireType
    nullable: bool = False


WireType = Fixed | Text | Blob | RecordsType | Array | type[Any]
"""A message class is also a wire type, which consists of its fields in order."""

Int8 = Annotated[int, Fixed("b", 1)]
Int16 = Annotated[int, Fixed("h", 2)]
Int32 = Annotated[int, Fixed("i", 4)]
Int64 = Annotated[int, Fixed("q", 8)]

_PLAIN: dict[Any, WireType] = {bool: Fixed("?", 1), str: Text(), bytes: Blob(), Records: RecordsType()}


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A row of a message's table: field ``name`` exists in versions ``since`` to ``until``, both included."""

    name: str
    type: WireType
    since: int
    until: int | None
    default: Callable[[], Any]

    def exists_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


def wire(*, since: int = 0, until: int | None = None, default: Any) -> Any:
    """Declares a field that some version lacks, or whose default is a list, of which each message gets a copy."""
    versions = {_VERSIONS: (since, until)}
    if isinstance(default, list):
        template = tuple(default)
        return dataclasses.field(default_factory=lambda: list(template), metadata=versions)
    return dataclasses.field(default=default, metadata=versions)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(cls: type[T]) -> type[T]:
    """Makes a message of the decorated class, whose fields must all have wire types."""
    return dataclass(slots=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """Declaration of a request: its API key, its supported versions (both included), and its response."""

    key: int
    min_version: int
    max_version: int
    response: type[Any]


class Request(Generic[R]):
    """Base of all requests; ``R`` is the response message."""

    __slots__ = ()


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def request(*, key: int, versions: tuple[int, int]) -> Callable[[type[T]], type[T]]:
    """Makes a request of the decorated class, which must derive from ``Request[ItsResponse]``."""

    def decorate(cls: type[T]) -> type[T]:
        decorated = message(cls)
        decorated._request_info = RequestInfo(key, *versions, _find_response(cls))  # type: ignore[attr-defined]
        return decorated

    return decorate


def _find_response(cls: type[Any]) -> type[Any]:
    for base in getattr(cls, "__orig_bases__", ()):
        if get_origin(base) is Request:
            return get_args(base)[0]  # type: ignore[no-any-return]
    raise TypeError(f"{cls.__name__} must derive from Request[...]")


def get_request_info(cls: type[Any]) -> RequestInfo:
    """Returns the declaration of a request class. Raises ``AttributeError`` for a message that is not a request."""
    info: RequestInfo = cls._request_info
    return info


def is_request(cls: type[Any]) -> bool:
    return hasattr(cls, "_request_info")


def read_table(cls: type[Any]) -> list[FieldRow]:
    """Returns a message's rows of all versions, in wire order. Raises ``TypeError`` for a field without a wire type."""
    types = get_type_hints(cls, include_extras=True)
    return [_to_row(field, _to_wire_type(types[field.name])) for field in dataclasses.fields(cls)]


def _to_row(field: dataclasses.Field[Any], type_: WireType) -> FieldRow:
    since, until = field.metadata.get(_VERSIONS, (0, None))
    if field.default_factory is not dataclasses.MISSING:
        return FieldRow(field.name, type_, since, until, field.default_factory)
    return FieldRow(field.name, type_, since, until, lambda: field.default)


def _to_wire_type(hint: Any) -> WireType:
    if is_message(hint):
        return hint  # type: ignore[no-any-return]
    if hint in _PLAIN:
        return _PLAIN[hint]
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        return arguments[1]  # type: ignore[no-any-return]
    if get_origin(hint) is list:
        return Array(_to_wire_type(arguments[0]))
    if get_origin(hint) is UnionType and arguments[1:] == (type(None),):
        return dataclasses.replace(_to_wire_type(arguments[0]), nullable=True)  # type: ignore[type-var]
    raise TypeError(f"no wire type: {hint}")


def is_message(type_: object) -> bool:
    return isinstance(type_, type) and dataclasses.is_dataclass(type_)


def measure_records(records: Records) -> int:
    """Returns the size of a ``Records`` field in bytes without reading it."""
    return len(records) if isinstance(records, bytes) else records.size


def read_records(records: Records) -> bytes:
    """Returns the bytes of a ``Records`` field, and reads a slice."""
    return records if isinstance(records, bytes) else records.read()
