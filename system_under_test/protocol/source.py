"""The Python source of an encoder or decoder while it is generated."""

import struct
from functools import cache
from typing import Any

from assay.system_under_test.protocol.schema import FieldRow, read_table


def find_fields(cls: type[Any], version: int) -> list[FieldRow]:
    return [row for row in read_table(cls) if row.exists_in(version)]


@cache
def compile_struct(format_: str) -> struct.Struct:
    return struct.Struct(format_)


class Source:
    """The source of one function: its lines, and the names that it uses. Subclasses emit the code of each wire type."""

    def __init__(self, cls: type[Any], version: int) -> None:
        self.cls = cls
        self.version = version
        self.title = f"{cls.__name__} v{version}"
        self.lines: list[str] = []
        self.indent = 2
        self.names: dict[str, Any] = {}
        self.counter = 0
        self.pending_fields: list[tuple[str, str]] = []
        """Fixed-width fields that one struct will encode or decode: each one's struct letter and expression."""

    def add_line(self, text: str) -> None:
        """Adds a line at the current indentation."""
        self.lines.append("    " * self.indent + text)

    def new_variable(self) -> str:
        """Returns an unused name for a local variable of the generated function."""
        self.counter += 1
        return f"v{self.counter}"

    def bind(self, value: Any) -> str:
        """Returns a name under which the generated code can use ``value``."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"g{len(self.names)}"
        self.names[name] = value
        return name

    def take_pending(self) -> tuple[struct.Struct, list[str]]:
        """Returns and clears the pending fields, as one struct and its expressions."""
        codes = "".join(code for code, _ in self.pending_fields)
        expressions = [expression for _, expression in self.pending_fields]
        self.pending_fields = []
        return compile_struct(">" + codes), expressions

    def compile_function(self, header: str, epilogue: list[str]) -> Any:
        """Compiles ``header``, the lines and ``epilogue``. Parameters replace ``{bound}`` in ``header``."""
        # Bound names are default arguments, because locals are faster than globals.
        bound = "".join(f", {name}={name}" for name in self.names)
        source = "\n".join([header.format(bound=bound), *self.lines, *epilogue])
        namespace = dict(self.names)
        exec(compile(source, f"<{self.title}>", "exec"), namespace)
        return namespace["function"]
