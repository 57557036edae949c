"""Templates that put a row of a check's evidence into words.

    {late_op} committed offset {position} of {key}[times>1?, {times-1} more times], called at {late_op:called}.

- ``{column}`` is the value of a column. For a column that ends in ``_op``, it is the operation's process
  (``process 12``).
- ``{column-1}`` and ``{column-other}`` are differences: of a column and a number, or of two columns.
- ``{column:form}`` has another form: ``called`` and ``returned`` (when an operation began and ended), ``number`` (an
  operation's index), ``time`` (nanoseconds as seconds), ``quoted``, ``capital`` (with a capital first letter).
- ``[one|two|three]`` is the first alternative that applies.

  - An alternative with a condition applies if its condition holds: ``[column=value?...]``, also with ``<`` and ``>``,
    or ``[column?...]``, which means that the column is not null. The value may be a ``{column}``.
  - An alternative without a condition applies if none of its columns is null.
  - If no alternative applies, the last one is used, unless it has a condition or is the only one.
  - Alternatives may contain alternatives.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from assay.checkers.engine import Row
from assay.checkers.times import format_seconds

# The tokens of a template: a field `{column-less:form}`, one of the signs `[`, `|` and `]`, each with the condition of
# the alternative that follows, or text.
_FIELD: Final = r"\{(?P<column>\w+)(?:-(?P<less>\w+))?(?::(?P<form>\w+))?\}"
_SIGN: Final = r"(?P<sign>[\[|\]])(?:(?P<tested>\w+)(?:(?P<test>[=<>])(?P<wanted>[\w-]*|\{\w+\}))?\?)?"
_TOKEN: Final = re.compile(rf"{_FIELD}|{_SIGN}|(?P<text>[^\[\]|{{}}?]+)|.")
_Token = re.Match[str]


@dataclass(frozen=True)
class InvolvedOperation:
    """Data of an operation for a sentence. ``ret`` is None if it is unknown whether and when the operation ended."""

    process: int
    call: int
    ret: int | None
    node: str | None = None
    """The node to which the operation's client connected, if known."""


@dataclass(frozen=True)
class InvolvedOperations:
    """Describes, in words, the operations that violations name."""

    operations: Mapping[int, InvolvedOperation]
    """By the operation's index."""

    def describe_process(self, op: int | None) -> str:
        """Returns ``process 12``, or ``process 12 through n1``."""
        if (known := self._known(op)) is None:
            return "an unknown process"
        return f"process {known.process}" + ("" if known.node is None else f" through {known.node}")

    def called(self, op: int | None) -> str:
        """Returns when the operation began, as ``14.203 s``."""
        return format_seconds(known.call) if (known := self._known(op)) else "an unknown time"

    def returned(self, op: int | None) -> str:
        """Returns when the operation ended, as ``14.203 s``."""
        known = self._known(op)
        return "no known time" if known is None or known.ret is None else format_seconds(known.ret)

    def span(self, op: int | None) -> tuple[int | None, int | None]:
        """Returns when the operation began and ended."""
        return (None, None) if (known := self._known(op)) is None else (known.call, known.ret)

    def _known(self, op: int | None) -> InvolvedOperation | None:
        return None if op is None else self.operations.get(op)


@dataclass(frozen=True)
class _Field:
    """``{column-less:form}``. ``less``: a number or a column that is subtracted."""

    column: str
    less: str | None
    form: str | None

    def value(self, row: Row) -> Any:
        value, less = row[self.column], self.less
        if less is None or value is None:
            return value
        subtrahend = int(less) if less.isdecimal() else row[less]
        return None if subtrahend is None else value - subtrahend

    def render(self, row: Row, involved: InvolvedOperations) -> str:
        value = self.value(row)
        match self.form:
            case "called":
                return involved.called(value)
            case "returned":
                return involved.returned(value)
            case "time":
                return "an unknown time" if value is None else format_seconds(value)
            case "number":
                return str(value)
            case "quoted":
                return repr(value)
        text = involved.describe_process(value) if self.column.endswith("_op") else str(value)
        return capitalize_first(text) if self.form == "capital" else text


@dataclass(frozen=True)
class _Condition:
    """``[column?``, or ``[column=value?`` with ``=``, ``<`` or ``>`` as its ``test``. ``wanted``: the value."""

    column: str
    test: str | None
    wanted: str

    def holds(self, row: Row) -> bool:
        value = row[self.column]
        wanted = row[self.wanted[1:-1]] if (self.wanted or "").startswith("{") else self.wanted
        if value is None or self.test is None:
            return value is not None
        if self.test == "=":
            return str(value) == str(wanted)
        return bool(value > int(wanted) if self.test == ">" else value < int(wanted))


@dataclass(frozen=True)
class Template:
    """A parsed template, or an alternative of one."""

    parts: "tuple[str | _Field | tuple[Template, ...], ...]"
    condition: _Condition | None = None
    is_default: bool = False
    """Whether this alternative is used if no other applies."""

    def applies(self, row: Row) -> bool:
        """Returns whether the condition holds or, without one, no column outside of alternatives is null."""
        if self.condition is not None:
            return self.condition.holds(row)
        fields = (part for part in self.parts if isinstance(part, _Field))
        return self.is_default or None not in (one.value(row) for one in fields)

    def render(self, row: Row, involved: InvolvedOperations) -> str:
        """Returns the text of a row."""
        texts = []
        for part in self.parts:
            if isinstance(part, tuple):
                texts += [one.render(row, involved) for one in part if one.applies(row)][:1]
            else:
                texts.append(part if isinstance(part, str) else part.render(row, involved))
        return "".join(texts)

    def find_columns(self) -> Iterator[str]:
        """Yields the columns in the order of the text. A column may occur several times."""
        for part in self.parts:
            if isinstance(part, tuple):
                for alternative in part:
                    yield from alternative.find_columns()
            elif isinstance(part, _Field):
                yield part.column


@lru_cache(None)
def parse_template(text: str) -> Template:
    """Parses a template. Raises ``ValueError`` for a malformed one."""
    template, end = _parse(_TOKEN.finditer(text), text)
    if end is not None:
        raise ValueError(f"{end.group()!r} at {end.start()} is outside of brackets: {text}")
    return template


def _parse(tokens: Iterator[_Token], text: str, start: _Token | None = None) -> tuple[Template, _Token | None]:
    """Parses up to the next ``|`` or ``]``, and returns the template and this sign.

    ``start``: the ``[`` or ``|`` before the template, with the template's condition.
    """
    parts: list[str | _Field | tuple[Template, ...]] = []
    condition = _Condition(start["tested"], start["test"], start["wanted"]) if start and start["tested"] else None
    for token in tokens:
        if token["text"]:
            parts.append(token["text"])
        elif token["column"]:
            parts.append(_Field(token["column"], token["less"], token["form"]))
        elif token["sign"] == "[":
            alternatives, end = [], token
            while end["sign"] != "]":
                alternative, following = _parse(tokens, text, end)
                if following is None:
                    raise ValueError(f"the bracket at {token.start()} is not closed: {text}")
                alternatives.append(alternative)
                end = following
            if len(alternatives) > 1 and alternatives[-1].condition is None:
                alternatives[-1] = replace(alternatives[-1], is_default=True)
            parts.append(tuple(alternatives))
        elif token["sign"]:
            return Template(tuple(parts), condition), token
        else:
            raise ValueError(f"{token.group()!r} at {token.start()} has no meaning: {text}")
    return Template(tuple(parts), condition), None


def capitalize_first(text: str) -> str:
    """Returns the text with a capital first letter. All other letters stay."""
    return text[0].upper() + text[1:]
