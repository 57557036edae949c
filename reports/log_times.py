"""Parses the time of a log line in the formats of common software.

- ISO 8601 in its usual variants, in brackets or after ``time=``, with a space or slashes
- the formats of Redis, glog, both kinds of syslog, Apache, Tomcat, Go and MariaDB
- seconds, milliseconds, microseconds or nanoseconds since 1970
- a JSON object with one of these formats in a usual field

A time without a zone counts as UTC, which test machines use. A time without a year gets the year in which it is nearest
to the run.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import msgspec

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH: Final = f"(?P<name>{'|'.join(MONTHS)})"
_CLOCK: Final = r"(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ZONE: Final = r"(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_BEFORE: Final = (
    r"(?:<\d+>1 )?[^A-Za-z\d]*+(?P<process>\d+(?::[A-Z]\b)?)?(?(process)[^A-Za-z\d]+)"
    r"(?:(?:time|ts|timestamp|t|date)=)?[\"'\[(]*"
)
"""Regular expression for text before a line's time: syslog's priority, brackets, a process number, a field name.

No two parts can match the same characters, so even a long line of brackets takes only linear time.
"""
_AFTER: Final = r"(?P<after>[\"'\])]*[:,]?(?:\s+.*)?)"

_FORMS: Final = tuple(
    re.compile(_BEFORE + form + _AFTER, re.DOTALL)
    for form in (
        rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ] ?{_CLOCK}{_ZONE}",
        rf"(?P<day>\d{{1,2}})[- /]{_MONTH}[- /](?P<year>\d{{4}})[ :]{_CLOCK}{_ZONE}",
        rf"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?{_MONTH} +(?P<day>\d{{1,2}}) {_CLOCK}(?: (?P<year>\d{{4}}))?",
        rf"(?P<level>[IWEF])(?P<month>\d\d)(?P<day>\d\d) {_CLOCK}",
        r"(?P<epoch>\d{10}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?)",
    )
)
_TIMES: Final = ("time", "ts", "timestamp", "@timestamp", "t", "datetime", "date", "asctime", "eventTime")
_LEVELS: Final = ("level", "lvl", "severity", "levelname", "s")
_MESSAGES: Final = ("msg", "message", "event", "text")
_HALF_A_YEAR: Final = timedelta(days=183)
_STEPS: Final = {10: 1, 13: 1_000, 16: 1_000_000, 19: 1_000_000_000}
"""By the number of digits of a present time since 1970, its units per second."""


def parse_line(line: str, run_time: float) -> tuple[float | None, str]:
    """Returns the time of ``line`` in seconds since 1970 (None without a time), and the rest of the line.

    ``run_time``: a time of the run, for formats without a year.
    """
    if line.startswith("{") and (found := _parse_json_line(line, run_time)) is not None:
        return found
    for form in _FORMS:
        if (match := form.fullmatch(line)) is not None and (time := _to_time(match.groupdict(), run_time)) is not None:
            parts = (match["process"], match.groupdict().get("level"), match["after"].lstrip(" \"'])").lstrip(":, "))
            return time, " ".join(part for part in parts if part)
    return None, line


def _to_time(parts: Mapping[str, str | None], run_time: float) -> float | None:
    if (epoch := parts.get("epoch")) is not None:
        whole = epoch.partition(".")[0]
        return float(epoch) / _STEPS[len(whole)]
    name, fraction, zone = parts.get("name"), parts["fraction"], parts.get("zone")
    month = MONTHS.index(name) + 1 if name is not None else int(parts["month"] or 0)
    nearest = datetime.fromtimestamp(run_time, UTC)
    clock = (int(parts["hour"] or 0), int(parts["minute"] or 0), int(parts["second"] or 0))
    micros = int(((fraction or "") + "000000")[:6])
    try:
        found = datetime(
            int(parts.get("year") or nearest.year),
            month,
            int(parts["day"] or 0),
            *clock,
            micros,
            tzinfo=_parse_zone(zone),
        )
        if parts.get("year") is None and abs(found - nearest) > _HALF_A_YEAR:
            found = found.replace(year=found.year + (1 if found < nearest else -1))
    except ValueError:
        return None
    return found.timestamp()


def _parse_zone(text: str | None) -> timezone:
    if text is None or text[0] not in "+-":
        return UTC
    shift = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(shift if text[0] == "+" else -shift)


def _parse_json_line(line: str, run_time: float) -> tuple[float, str] | None:
    """Parses a JSON object with a time; the text is its level and message, followed by all other fields."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return None
    for name in _TIMES:
        value = fields.get(name)
        if isinstance(value, dict):
            value = value.get("$date")  # MongoDB's format
        text = value if isinstance(value, str) else _format_value(value)
        time = None if text is None else parse_line(text, run_time)[0]
        if time is not None:
            del fields[name]
            level, message = _take_field(fields, _LEVELS, str.upper), _take_field(fields, _MESSAGES, str)
            rest = [f"{key}={_format_value(field)}" for key, field in fields.items()]
            return time, " ".join(part for part in (level, message, *rest) if part)
    return None


def _take_field(fields: dict[str, Any], names: tuple[str, ...], convert: Callable[[str], str]) -> str | None:
    for name in names:
        if isinstance(fields.get(name), str):
            return convert(fields.pop(name))
    return None


def _format_value(value: Any) -> str | None:
    """Formats a value as JSON, but texts without quotes, and numbers without exponents. None for null and Booleans."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
