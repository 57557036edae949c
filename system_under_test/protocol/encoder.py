"""Generates the function that encodes a message in one version."""

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from assay.system_under_test.protocol import schema
from assay.system_under_test.protocol.source import Source, find_rows

Encoder = Callable[[Any, list[schema.Records]], int]
"""Appends the message's chunks to the list; returns the number of slices among them."""


class EncoderSource(Source):
    def compile(self) -> Encoder:
        self.line("slices = 0")
        self.message(self.cls, "m")
        self.flush()
        failure = self.bind(_reject_value)
        errors = self.bind((struct.error, UnicodeEncodeError))
        self.line("return slices")
        epilogue = [f"    except {errors} as error:", f"        {failure}({self.title!r}, error)"]
        made: Encoder = self.function("def function(m, chunks{bound}):\n    write = chunks.append\n    try:", epilogue)
        return made

    def flush(self) -> None:
        if self.pending_fields:
            layout, expressions = self.take_pending()
            self.line(f"write({self.bind_pack(layout)}({', '.join(expressions)}))")

    def bind_pack(self, layout: struct.Struct) -> str:
        name = f"pack_{layout.format[1:].replace('?', 'B')}"
        self.names[name] = layout.pack
        return name

    def message(self, cls: type[Any], variable: str) -> None:
        for row in find_rows(cls, self.version):
            self.value(row.type, f"{variable}.{row.name}")

    def value(self, type_: schema.WireType, expression: str) -> None:
        match type_:
            case schema.Fixed(code=code):
                self.pending_fields.append((code, expression))
            case schema.Text(nullable=nullable):
                self.sized("h", expression, ".encode()", nullable)
            case schema.Blob(nullable=nullable):
                self.sized("i", expression, "", nullable)
            case schema.RecordsType():
                self.records(expression)
            case schema.Array():
                self.array(type_, expression)
            case _ if schema.is_message(type_):
                self.message(type_, expression)
            case _:
                raise TypeError(f"{self.title}: {type_!r} is not a wire type")

    def sized(self, code: str, expression: str, convert: str, nullable: bool) -> None:
        value = self.variable()
        if nullable:
            self.line(f"{value} = {expression}")
            if convert:
                self.line(f"if {value} is not None: {value} = {value}{convert}")
            self.pending_fields.append((code, f"-1 if {value} is None else len({value})"))
        else:
            self.line(f"{value} = {expression}{convert}")
            self.pending_fields.append((code, f"len({value})"))
        self.flush()
        self.line(f"if {value}: write({value})")

    def records(self, expression: str) -> None:
        value, size = self.variable(), self.variable()
        self.line(f"{value} = {expression}")
        self.line(f"if isinstance({value}, bytes): {size} = len({value})")
        self.line("else:")
        self.line(f"    {size} = {value}.size")
        self.line(f"    if {size}: slices += 1")
        self.pending_fields.append(("i", size))
        self.flush()
        self.line(f"if {size}: write({value})")

    def array(self, type_: schema.Array, expression: str) -> None:
        value, element = self.variable(), self.variable()
        self.line(f"{value} = {expression}")
        count = f"-1 if {value} is None else len({value})" if type_.nullable else f"len({value})"
        self.pending_fields.append(("i", count))
        self.flush()
        if isinstance(type_.element, schema.Fixed):
            pack = self.bind(struct.pack)
            self.line(f"if {value}: write({pack}('>%d{type_.element.code}' % len({value}), *{value}))")
            return
        self.line(f"for {element} in {value} or ():" if type_.nullable else f"for {element} in {value}:")
        self.indent += 1
        start = len(self.lines)
        self.value(type_.element, element)
        self.flush()
        if len(self.lines) == start:
            self.line("pass")
        self.indent -= 1


def _reject_value(title: str, error: Exception) -> NoReturn:
    raise schema.ProtocolError(f"{title} cannot be encoded: {error}") from error
