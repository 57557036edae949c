"""Generates the function that decodes a message in one version.

The decoder trusts no input. Before it allocates memory, it compares each length with the number of remaining bytes, and
each count with the minimum size of that many elements. It raises only :class:`ProtocolError`.
"""

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from assay.system_under_test.protocol import schema
from assay.system_under_test.protocol.source import Source, find_fields

MAX_ELEMENTS = 250_000
"""Maximum number of array elements in one request. Each becomes an object here, and often one in the response: without
the limit, 100 MB of empty topic names take many GB."""

Decoder = Callable[[bytes, int], Any]
"""Takes data and a position, and decodes from there to the end."""


def _find_min_size(type_: schema.WireType, version: int) -> int:
    """Returns the minimum size of a value of this type, in bytes."""
    match type_:
        case schema.Fixed(size=size):
            return size
        case schema.Text():
            return 2
        case schema.Blob() | schema.RecordsType() | schema.Array():
            return 4
        case _:
            return sum(_find_min_size(row.type, version) for row in find_fields(type_, version))


class DecoderSource(Source):
    """The source of a decoder. In the generated code ``data`` has the bytes, and ``p`` is the position. ``n`` counts
    array elements."""

    def compile(self) -> Decoder:
        self.limited = schema.is_request(self.cls)
        if self.limited:
            self.add_line("n = 0")
        target = self.emit_message(self.cls, "message")
        left_over = self.bind(_reject_left_over)
        self.add_line(f"if p != end: {left_over}({self.title!r}, end - p)")
        self.add_line(f"return {target}")
        truncated = self.bind(_reject_truncated)
        errors = self.bind((struct.error, UnicodeDecodeError))
        epilogue = [f"    except {errors} as error:", f"        {truncated}({self.title!r}, error)"]
        function: Decoder = self.compile_function(
            "def function(data, p{bound}):\n    end = len(data)\n    try:", epilogue
        )
        return function

    def flush(self) -> None:
        """Emits code that reads the pending fields."""
        if self.pending_fields:
            layout, targets = self.take_pending()
            name = f"unpack_{layout.format[1:].replace('?', 'B')}"
            self.names[name] = layout.unpack_from
            self.add_line(f"{', '.join(targets)}, = {name}(data, p)")
            self.add_line(f"p += {layout.size}")

    def emit_message(self, cls: type[Any], path: str) -> str:
        """Emits code that reads all fields; returns the variable that holds the new object."""
        values: list[tuple[str, str]] = []
        for row in schema.read_table(cls):
            if row.exists_in(self.version):
                values.append((row.name, self.emit_value(row.type, row.name)))
            else:
                values.append((row.name, f"{self.bind(row.default)}()"))
        self.flush()
        # Bypassing __init__ saves a frame and the matching of keywords.
        new, target = self.bind(object.__new__), self.new_variable()
        self.add_line(f"{target} = {new}({self.bind(cls)})")
        for name, expression in values:
            self.add_line(f"{target}.{name} = {expression}")
        return target

    def emit_value(self, type_: schema.WireType, path: str) -> str:
        """Emits code that reads one value; returns the variable that holds it after the next ``flush``."""
        match type_:
            case schema.Fixed(code=code):
                value = self.new_variable()
                self.pending_fields.append((code, value))
                return value
            case schema.Text(nullable=nullable):
                return self.emit_sized("h", ".decode()", path, nullable)
            case schema.Blob(nullable=nullable):
                return self.emit_sized("i", "", path, nullable)
            case schema.RecordsType():
                return self.emit_sized("i", "", path, nullable=True, null="b''")
            case schema.Array():
                return self.emit_array(type_, path)
            case _ if schema.is_message(type_):
                return self.emit_message(type_, path)
            case _:
                raise TypeError(f"{self.title}: {type_!r} is not a wire type")

    def emit_sized(self, code: str, convert: str, path: str, nullable: bool, null: str = "None") -> str:
        """Emits code that reads a length, with this struct letter, and as many bytes."""
        size, value, stop = self.new_variable(), self.new_variable(), self.new_variable()
        self.pending_fields.append((code, size))
        self.flush()
        if nullable:
            self.add_line(f"if {size} == -1: {value} = {null}")
            self.add_line("else:")
            self.indent += 1
        self.add_line(f"{stop} = p + {size}")
        reject = self.bind(_reject_length)
        self.add_line(f"if {size} < 0 or {stop} > end: {reject}({self.title!r}, {path!r}, {size}, end - p)")
        self.add_line(f"{value} = data[p:{stop}]{convert}")
        self.add_line(f"p = {stop}")
        if nullable:
            self.indent -= 1
        return value

    def emit_array(self, type_: schema.Array, path: str) -> str:
        count, value = self.new_variable(), self.new_variable()
        self.pending_fields.append(("i", count))
        self.flush()
        if type_.nullable:
            self.add_line(f"if {count} == -1: {value} = None")
            self.add_line("else:")
            self.indent += 1
        reject = self.bind(_reject_length)
        # An element without fields in this version counts as one byte: otherwise any count would pass.
        least = max(1, _find_min_size(type_.element, self.version))
        self.add_line(f"if {count} < 0 or {count} * {least} > end - p:")
        self.add_line(f"    {reject}({self.title!r}, {path!r}, {count}, end - p)")
        if self.limited:
            self.add_line(f"n += {count}")
            self.add_line(f"if n > {MAX_ELEMENTS}: {self.bind(_reject_too_many)}({self.title!r}, {path!r})")
        if isinstance(type_.element, schema.Fixed):
            unpack = self.bind(struct.unpack_from)
            self.add_line(f"{value} = list({unpack}('>%d{type_.element.code}' % {count}, data, p))")
            self.add_line(f"p += {count} * {type_.element.size}")
        else:
            self.add_line(f"{value} = []")
            self.add_line(f"for _ in range({count}):")
            self.indent += 1
            element = self.emit_value(type_.element, path)
            self.flush()
            self.add_line(f"{value}.append({element})")
            self.indent -= 1
        if type_.nullable:
            self.indent -= 1
        return value


def _reject_truncated(title: str, error: Exception) -> NoReturn:
    raise schema.ProtocolError(f"{title} cannot be decoded: {error}") from error


def _reject_left_over(title: str, count: int) -> NoReturn:
    raise schema.ProtocolError(f"{title} is followed by {count} bytes that do not belong to it")


def _reject_too_many(title: str, path: str) -> NoReturn:
    raise schema.ProtocolError(f"{title}: more than {MAX_ELEMENTS} elements, the last in {path}")


def _reject_length(title: str, path: str, length: int, left: int) -> NoReturn:
    raise schema.ProtocolError(f"{title}: {path} has length {length}, but {left} bytes are left")
