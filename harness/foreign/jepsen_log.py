"""Operations from lines of text: of a ``jepsen.log``, and of the ``history.txt`` beside each ``history.edn``.

Operations of a ``jepsen.log`` have any of these forms, with tabs or blanks between the words::

    INFO  jepsen.util - 0 :invoke :read nil
    INFO [2020-11-22 01:02:03,456] jepsen worker 0 - jepsen.util 0 :ok :write 3
    2022-11-22 01:02:03,456{GMT} INFO [jepsen worker 0] jepsen.util: 0 :info :cas :timed-out

Other lines are counted and skipped. The order of the lines counts as time. A call is logged before it is made and a
completion after it, so an operation took place between its lines. The timestamps, in milliseconds, are less exact.

Text after the value of a completion is its error. After an ok value, the error must follow a tab, which Jepsen writes
there, or begin with one of ``: [ { ( " #``. Otherwise it could be more of the value, for example a second word.

Each line of a ``history.txt`` is an operation, without the words of the logger. But an error may be a text of several
lines. Its further lines are skipped and counted. A line that looks like part of an operation is never skipped.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from assay.harness.foreign import edn
from assay.harness.foreign.edn import to_name
from assay.harness.foreign.entry import INVOKE, Entry, parse_process, parse_type, require_readable
from assay.harness.foreign.source import MalformedError, Progress, TextPosition, read_lines, shorten

# No two parts of a pattern may match the same blanks: the time of a search would grow with the square of their number.
_LOGGER: Final = r"\bjepsen\.util\b[ \t]*+(?:[-:][ \t]++|(?<=[ \t]))"
LINE: Final = re.compile(_LOGGER + r"(?P<process>\d+|:[^\s:]+)[ \t]+(?P<type>:\S*)(?P<rest>.*)")
"""Matches an operation from its process on. A cut line may end inside the type, or lack the rest."""
_BEGINNING: Final = re.compile(_LOGGER + r"(?:\d+(?=[ \t]|\Z)|:[^\s:]+(?=[ \t]+:))")
"""The beginning of an operation. A line that ends there was cut. If a line has two, the end of the first is lost."""
_NAME: Final = re.compile(r"\bjepsen\.util\b(?![$/])")
"""The name of the logger, but not of a class or function in a stack trace."""
_TYPE: Final = re.compile(r":(?:invoke|ok|fail|info)(?![\w*+!?$%&=<>|'#/:.-])")
"""The type of an operation. Any text may come before it, such as the escape sequence of a terminal's colour."""
_REST: Final = re.compile(r"[ \t]+:(?P<f>[^\s:]+)[ \t]+(?P<value>\S.*)")
_ERROR_BEGINNINGS: Final = ':[{("#'
"""Characters with which an error may begin. A word does not count, because it could belong to an unquoted value."""
_MAX_CACHED: Final = 10_000

TEXT_LINE: Final = re.compile(r"(?P<process>\d+|:[^\s:]+|nil)[ \t]+(?P<type>:(?:invoke|ok|fail|info))(?P<rest>[ \t].*)")
_TEXT_REST: Final = re.compile(r"[ \t]+(?::(?P<f>[^\s:]+)|nil)[ \t]+(?P<value>\S.*)")
_TEXT_PART: Final = re.compile(
    r"\A[ \t]*(?:\d+|:?\w+|nil)[ \t]*:(?:invoke|ok|fail|info)\b|:(?:invoke|ok|fail|info)[ \t]+:"
)
"""Part of a line that may be a damaged operation."""


class LogReader:
    """Reads the operations of a log. ``skipped`` counts the lines so far without an operation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, tuple[Any, int]] = {}
        self.skipped = 0

    def iterate_entries(self, progress: Progress) -> Iterator[Entry]:
        """Yields the entries.

        Raises ``MalformedError`` for a line with part of an operation or with two operations, and for a last line
        without line end.
        """
        for number, line, ended in read_lines(self._path, progress):
            if not ended and line.strip():
                place = TextPosition(number, len(line) + 1)
                raise MalformedError(
                    self._path, place, "the last line has no line end, so the file may be cut short; if not, add one"
                )
            match = LINE.search(line)
            self._reject_damaged(number, line, match is not None)
            if match is None:
                self.skipped += 1
                continue
            yield self.parse_entry(number, line, match, _REST)

    def _reject_damaged(self, number: int, line: str, found: bool) -> None:
        """Raises for a damaged operation, which would otherwise be skipped like any other line.

        ``found``: whether the line has an operation that can be read.
        """
        if "\0" in line:
            place = TextPosition(number, line.index("\0") + 1)
            raise MalformedError(self._path, place, "a zero byte: the file is damaged, or in another encoding")
        if found and line.count("jepsen.util") == 1:
            return
        beginnings = list(_BEGINNING.finditer(line))
        starts = sorted({begin.start() for begin in beginnings}.union(_find_typed(line)))
        if len(starts) > 1:
            place = TextPosition(number, starts[1] + 1)
            raise MalformedError(self._path, place, "a second operation on one line: the end of the first is lost")
        if found or not starts:
            return
        shown, place = shorten(line[starts[0] :]), TextPosition(number, starts[0] + 1)
        if beginnings and not line[beginnings[0].end() :].strip():
            raise MalformedError(self._path, place, f"{shown} is cut after the process")
        if not beginnings or _TYPE.search(line, beginnings[0].end()):
            reason = "has the type of an operation, but is not process, :type, :f and value"
            raise MalformedError(self._path, place, f"{shown} {reason}: the line is damaged or has colours")

    def parse_entry(self, number: int, line: str, match: re.Match[str], pattern: re.Pattern[str]) -> Entry:
        """Reads the operation of a line.

        ``match`` has the process, the type and the rest, and ``pattern`` divides the rest into f and value. Raises
        ``MalformedError``.
        """
        place = TextPosition(number, match.start("process") + 1)
        process, type_text = match["process"], match["type"]
        nemesis = process.startswith(":")
        completion = parse_type(self._path, TextPosition(number, match.start("type") + 1), edn.Keyword(type_text[1:]))
        rest = pattern.fullmatch(match["rest"])
        if rest is None:
            raise MalformedError(
                self._path,
                place,
                f"{shorten(line[match.start('process') :])} is not process, :type, :f and value; repair or remove it",
            )
        if nemesis:
            return Entry(place, None, completion, rest["f"] or "", None, nemesis=True)
        offset = match.start("rest") + rest.start("value")
        value, error = self._parse_value(TextPosition(number, offset + 1), completion, rest["value"])
        # `parse_process` rejects the text of a longer number.
        number_or_text = int(process) if process.isdigit() and len(process) < 20 else process
        named = None if process == "nil" else parse_process(self._path, place, number_or_text)
        return Entry(place, named, completion, rest["f"] or "", value, error=error)

    def _parse_value(self, place: TextPosition, type: str, text: str) -> tuple[Any, str | None]:
        cached = self._values.get(text)
        if cached is None:
            try:
                cached = edn.parse_first(self._path, text, place)
            except MalformedError:
                if type in (INVOKE, "ok"):
                    raise
                return None, text.strip()  # an error in free text
            if (unreadable := edn.find_unreadable(cached[0])) is not None:
                if type in (INVOKE, "ok"):
                    require_readable(self._path, unreadable, f"the value of {shorten(':' + type)}")
                return None, text.strip()
            if len(self._values) < _MAX_CACHED:
                self._values[text] = cached
        value, end = cached
        more = text[end:].strip()
        if more and (type == INVOKE or (type == "ok" and "\t" not in text[end:] and more[0] not in _ERROR_BEGINNINGS)):
            after = TextPosition(place.line, place.column + text.index(more, end))
            raise MalformedError(self._path, after, f"{shorten(more)} stands after the value of an operation")
        return value, self._parse_error(place, more) if more else None

    def _parse_error(self, place: TextPosition, text: str) -> str:
        """Returns an error text as EDN reads it, if it is one EDN value."""
        try:
            value, end = edn.parse_first(self._path, text, place)
        except MalformedError:
            return text
        return to_name(value) if end == len(text) else text


class HistoryTextReader(LogReader):
    """Reads the operations of a ``history.txt``. ``skipped`` counts the further lines of errors so far."""

    def iterate_entries(self, progress: Progress) -> Iterator[Entry]:
        """Yields the entries.

        Raises ``MalformedError`` for any other line than an operation or a further line of an error, and for a last
        line without line end.
        """
        in_error = False
        for number, line, ended in read_lines(self._path, progress):
            if not line.strip():
                continue
            if not ended:
                place = TextPosition(number, len(line) + 1)
                raise MalformedError(
                    self._path, place, "the last line has no line end, so the file may be cut short; if not, add one"
                )
            match = TEXT_LINE.fullmatch(line)
            if match is None:
                if not in_error or "\0" in line or _TEXT_PART.search(line):
                    raise MalformedError(
                        self._path,
                        TextPosition(number, 1),
                        f"{shorten(line)} is not process, :type, :f and value; repair or remove the line",
                    )
                self.skipped += 1
                continue
            entry = self.parse_entry(number, line, match, _TEXT_REST)
            in_error = entry.error is not None or entry.nemesis
            yield entry


def _find_typed(line: str) -> Iterator[int]:
    """Yields the start of each name of the logger that is followed by the type of an operation."""
    names = list(_NAME.finditer(line))
    for name, following in zip_longest(names, names[1:]):
        if _TYPE.search(line, name.end(), len(line) if following is None else following.start()):
            yield name.start()
