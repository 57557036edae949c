"""Messages as tables of wire types: data, not code per request.

A message is a dataclass whose fields carry a wire type and the versions in which they exist; one class describes the
message in all its versions::

    @message
    class FetchPartition:
        partition: int = wire(INT32)
        offset: int = wire(INT64)
        max_bytes: int = wire(INT32)

    @request(key=1, versions=(0, 3))
    class FetchRequest(Request[FetchResponse]):
        replica_id: int = wire(INT32)
        max_bytes: int = wire(INT32, since=3, default=2**31 - 1)
        topics: list[FetchTopic] = wire(array(FetchTopic))

The base ``Request[R]`` lets both the type checker and the registry know what the answer is. Fields are keyword-only.
A field that some version lacks needs a default: decoding that version yields it, encoding that version leaves the field
out. The order of the fields is their order on the wire.

Messages are plain slotted dataclasses, not frozen ones: a frozen one costs three times as much to make, and thousands a
second pass through here in one process. By convention a message is not changed after it was made.

How a table becomes code is the business of :mod:`assay.system_under_test.protocol.compiler`.

Source of the types: "A Guide To The Kafka Protocol" and ``org.apache.kafka.common.protocol.types`` of 0.10.2.
All numbers are big-endian.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, dataclass_transform, get_args, get_origin

from assay.system_under_test.runtime import Slice

T = TypeVar("T")
R = TypeVar("R")

Records = bytes | Slice
"""What a ``RECORDS`` field holds: bytes once decoded; when encoding also a stored slice, which is sent unread."""

_WIRE = "wire"


class ProtocolError(ValueError):
    """Bytes that are not the message they claim to be, or a value that its wire type cannot carry."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number of fixed width; ``code`` is its letter in :mod:`struct`."""

    name: str
    code: str
    size: int


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 behind a 16-bit length; -1 is null."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes behind a 32-bit length; -1 is null."""

    nullable: bool = False


@dataclass(frozen=True, slots=True)
class RecordsType:
    """A message set behind a 32-bit length in bytes. Null, which 0.10.2 lets pass, is read as empty."""


@dataclass(frozen=True, slots=True)
class Array:
    """Elements behind a 32-bit count; -1 is null. The element is a wire type or a message class."""

    element: WireType
    nullable: bool = False


WireType = Fixed | Text | Blob | RecordsType | Array | type[Any]
"""A message class is a wire type too: its fields, one after the other."""

INT8 = Fixed("INT8", "b", 1)
INT16 = Fixed("INT16", "h", 2)
INT32 = Fixed("INT32", "i", 4)
INT64 = Fixed("INT64", "q", 8)
BOOLEAN = Fixed("BOOLEAN", "?", 1)
STRING = Text()
NULLABLE_STRING = Text(nullable=True)
BYTES = Blob()
NULLABLE_BYTES = Blob(nullable=True)
RECORDS = RecordsType()


def array(element: WireType) -> Array:
    """A list of ``element``; never null."""
    return Array(element)


def nullable_array(element: WireType) -> Array:
    """A list of ``element``, or None."""
    return Array(element, nullable=True)


@dataclass(frozen=True, slots=True)
class Wire:
    """One row of a message's table: field ``name`` exists in versions ``since`` to ``until``, both included."""

    name: str
    type: WireType
    since: int
    until: int | None
    default: Callable[[], Any] | None

    def exists_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


def wire(type: WireType, *, since: int = 0, until: int | None = None, default: Any = dataclasses.MISSING) -> Any:
    """Declares a field of a message. ``default`` may be a list, which is then copied for each message."""
    partial = since > 0 or until is not None
    if partial and default is dataclasses.MISSING:
        raise TypeError("a field that some version lacks needs a default")
    if isinstance(default, list):
        template = tuple(default)
        factory: Callable[[], Any] = lambda: list(template)  # noqa: E731 (typed lambda)
        row = Wire("", type, since, until, factory)
        return dataclasses.field(default_factory=factory, metadata={_WIRE: row})
    constant: Callable[[], Any] | None = None if default is dataclasses.MISSING else lambda: default
    return dataclasses.field(default=default, metadata={_WIRE: Wire("", type, since, until, constant)})


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(cls: type[T]) -> type[T]:
    """Makes a message of a class all of whose fields are declared by :func:`wire`."""
    made = dataclass(slots=True, kw_only=True)(cls)
    for field in dataclasses.fields(made):  # type: ignore[arg-type]
        if _WIRE not in field.metadata:
            raise TypeError(f"{cls.__name__}.{field.name} has no wire type")
    return made


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What ``@request`` was given: the API's number, the versions that are spoken (both included), and the answer."""

    key: int
    min_version: int
    max_version: int
    response: type[Any]


class Request(Generic[R]):
    """Base of all requests; ``R`` is the message that answers it."""

    __slots__ = ()


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def request(*, key: int, versions: tuple[int, int]) -> Callable[[type[T]], type[T]]:
    """Makes a message that is a request; the class must derive from ``Request[ItsResponse]``."""

    def decorate(cls: type[T]) -> type[T]:
        made = message(cls)
        made._request_info = RequestInfo(key, *versions, _declared_response(cls))  # type: ignore[attr-defined]
        return made

    return decorate


def _declared_response(cls: type[Any]) -> type[Any]:
    for base in getattr(cls, "__orig_bases__", ()):
        if get_origin(base) is Request:
            return get_args(base)[0]  # type: ignore[no-any-return]
    raise TypeError(f"{cls.__name__} must derive from Request[...]")


def request_info(cls: type[Any]) -> RequestInfo:
    """What was declared of a request's class. Raises ``AttributeError`` for a message that is no request."""
    info: RequestInfo = cls._request_info
    return info


def is_request(cls: type[Any]) -> bool:
    return hasattr(cls, "_request_info")


def table(cls: type[Any]) -> list[Wire]:
    """The rows of a message, in wire order, of all versions."""
    return [dataclasses.replace(field.metadata[_WIRE], name=field.name) for field in dataclasses.fields(cls)]


def is_message(type_: object) -> bool:
    return isinstance(type_, type) and dataclasses.is_dataclass(type_)


def records_size(records: Records) -> int:
    """How many bytes a ``RECORDS`` field has, without reading them."""
    return len(records) if isinstance(records, bytes) else records.size


def records_bytes(records: Records) -> bytes:
    """The bytes of a ``RECORDS`` field, with any content."""
    return records if isinstance(records, bytes) else records.read()
