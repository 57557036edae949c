"""Generates the function that encodes a message in one version.

Fields of fixed size are collected, and one struct packs them. A message with an int32, a string and an int16 gives::

    v1 = m.name.encode()
    write(pack_ih(m.id, len(v1)))
    if v1: write(v1)
    write(pack_h(m.port))
"""

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from assay.system_under_test.protocol import schema
from assay.system_under_test.protocol.source import Source, find_fields

Encoder = Callable[[Any, list[schema.Records]], int]
"""Appends the message's chunks to the list; returns the number of file slices (``Records`` that are not bytes)."""


class EncoderSource(Source):
    """The source of an encoder. In the generated code ``m`` is the message, and ``write`` appends a chunk."""

    def compile(self) -> Encoder:
        self.add_line("slices = 0")
        self.emit_message(self.cls, "m")
        self.flush()
        failure = self.bind(_reject_value)
        errors = self.bind((struct.error, UnicodeEncodeError))
        self.add_line("return slices")
        epilogue = [f"    except {errors} as error:", f"        {failure}({self.title!r}, error)"]
        function: Encoder = self.compile_function(
            "def function(m, chunks{bound}):\n    write = chunks.append\n    try:", epilogue
        )
        return function

    def flush(self) -> None:
        """Emits code that writes the pending fields."""
        if self.pending_fields:
            layout, expressions = self.take_pending()
            # The name contains the struct format, without the byte order and characters that no name may have.
            name = f"pack_{layout.format[1:].replace('?', 'B')}"
            self.names[name] = layout.pack
            self.add_line(f"write({name}({', '.join(expressions)}))")

    def emit_message(self, cls: type[Any], variable: str) -> None:
        for row in find_fields(cls, self.version):
            self.emit_value(row.type, f"{variable}.{row.name}")

    def emit_value(self, type_: schema.WireType, expression: str) -> None:
        match type_:
            case schema.Fixed(code=code):
                self.pending_fields.append((code, expression))
            case schema.Text(nullable=nullable):
                self.emit_sized("h", expression, ".encode()", nullable)
            case schema.Blob(nullable=nullable):
                self.emit_sized("i", expression, "", nullable)
            case schema.RecordsType():
                self.emit_records(expression)
            case schema.Array():
                self.emit_array(type_, expression)
            case _ if schema.is_message(type_):
                self.emit_message(type_, expression)
            case _:
                raise TypeError(f"{self.title}: {type_!r} is not a wire type")

    def emit_sized(self, code: str, expression: str, convert: str, nullable: bool) -> None:
        value = self.new_variable()
        if nullable:
            self.add_line(f"{value} = {expression}")
            if convert:
                self.add_line(f"if {value} is not None: {value} = {value}{convert}")
            self.pending_fields.append((code, f"-1 if {value} is None else len({value})"))
        else:
            self.add_line(f"{value} = {expression}{convert}")
            self.pending_fields.append((code, f"len({value})"))
        self.flush()
        self.add_line(f"if {value}: write({value})")

    def emit_records(self, expression: str) -> None:
        value, size = self.new_variable(), self.new_variable()
        self.add_line(f"{value} = {expression}")
        self.add_line(f"if isinstance({value}, bytes): {size} = len({value})")
        self.add_line("else:")
        self.add_line(f"    {size} = {value}.size")
        self.add_line(f"    if {size}: slices += 1")
        self.pending_fields.append(("i", size))
        self.flush()
        self.add_line(f"if {size}: write({value})")

    def emit_array(self, type_: schema.Array, expression: str) -> None:
        value, element = self.new_variable(), self.new_variable()
        self.add_line(f"{value} = {expression}")
        count = f"-1 if {value} is None else len({value})" if type_.nullable else f"len({value})"
        self.pending_fields.append(("i", count))
        self.flush()
        if isinstance(type_.element, schema.Fixed):
            pack = self.bind(struct.pack)
            self.add_line(f"if {value}: write({pack}('>%d{type_.element.code}' % len({value}), *{value}))")
            return
        self.add_line(f"for {element} in {value} or ():" if type_.nullable else f"for {element} in {value}:")
        self.indent += 1
        start = len(self.lines)
        self.emit_value(type_.element, element)
        self.flush()
        if len(self.lines) == start:
            self.add_line("pass")
        self.indent -= 1


def _reject_value(title: str, error: Exception) -> NoReturn:
    raise schema.ProtocolError(f"{title} cannot be encoded: {error}") from error
