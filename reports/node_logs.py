"""The nodes' event logs and process logs on the run's time axis.

The times of lines are corrected by the measured offsets of the nodes' wall clocks, which have errors. So the order of
lines of different nodes proves nothing. A report has at most ``MOST_LINES`` lines: the lines nearest to a finding or to
a change of a fault.
"""

import enum
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import msgspec

from assay.checkers.times import NANOSECONDS
from assay.harness.core.files import leads_outside, read_json
from assay.harness.core.timestamps import Origin
from assay.reports.history_db import HistoryDatabase
from assay.reports.log_times import parse_line

MOST_LINES: Final = 5_000
MOST_EVENTS: Final = 50_000
LONGEST_LINE: Final = 240
"""Maximum number of characters of a line."""
TAIL: Final = 4 << 20
"""Maximum number of bytes read from the end of a log file."""
LATEST: Final = 1e10
"""Maximum time in seconds in a valid file of sizes."""
VIRTUAL: Final = re.compile(r"\s*(\d{1,9}\.\d{6}) (.*)")
"""A line of a simulated process, which begins with the virtual time."""

GROWTH: Final = "growth.json"
"""File in ``logs/``: by node and log file, times of the event loop and the file's sizes (``cluster/ssh/logs.py``)."""
_Growth = dict[str, dict[str, list[tuple[float, int]]]]


class TimeSource(enum.Enum):
    """Source of a line's time: its own text, its arrival, or a neighbouring line of its file."""

    OWN = 0
    ARRIVAL = 1
    NEIGHBOUR = 2


@dataclass(frozen=True)
class LogLine:
    """A line of a log. ``time``: nanoseconds since the run began. ``event``: whether it is from an event log."""

    time: int
    node: str
    event: bool
    text: str
    time_source: TimeSource = TimeSource.OWN


@dataclass(frozen=True)
class LogLines:
    """Lines sorted by time. Lines of equal time keep the order of their file. ``omitted``: number of further lines.

    ``timeless``: files whose lines have no known times.
    """

    lines: tuple[LogLine, ...] = ()
    omitted: int = 0
    timeless: tuple[str, ...] = ()

    def has_source(self, time_source: str) -> bool:
        """Returns whether any line's time has this source, such as ``ARRIVAL``."""
        return any(line.time_source is TimeSource[time_source] for line in self.lines)


def read_node_logs(database: HistoryDatabase, logs: Path, origin: Origin | None, moments: Sequence[int]) -> LogLines:
    """Reads events and log files. ``logs``: the run's ``logs/``. ``moments``: times whose nearest lines are kept.

    Without ``origin``, only events have a time and are shown. A link that leads out of the run is left out.
    """
    found, timeless = [*_iterate_events(database)], []
    if origin is not None:
        for path in sorted(path for path in logs.glob("*/*.log") if not leads_outside(path, logs.parent)):
            lines = list(read_log(path, path.parent.name, origin))
            found += lines
            if not lines and _read_tail(path)[1].strip():
                timeless.append(f"{path.parent.name}/{path.name}")
    found.sort(key=lambda line: line.time)
    if len(found) <= MOST_LINES:
        return LogLines(tuple(found), timeless=tuple(timeless))
    near = sorted(moments) or [0]
    nearest = sorted(range(len(found)), key=lambda index: _find_distance(near, found[index].time))[:MOST_LINES]
    return LogLines(tuple(found[index] for index in sorted(nearest)), len(found) - len(nearest), tuple(timeless))


def read_log(path: Path, node: str, origin: Origin) -> Iterator[LogLine]:
    """Yields lines in order. Rules for a line without a time in its text:

    1. It continues the previous line, as in a traceback, if that line has a time in its text, and both arrived together
       or the arrival is unknown.
    2. Otherwise it has the time of its arrival, if known.
    3. Otherwise it has the time of the next line with a time, or of the last line.
    """
    growth = _FileGrowth.read(path, origin)
    ahead = origin.ahead.get(node, 0.0)
    if abs(ahead) < LATEST:
        origin = msgspec.structs.replace(origin, wall=origin.wall + ahead)  # by the node's clock, as are its lines
    last: LogLine | None = None
    last_arrival: int | None = None
    timeless_lines: list[str] = []
    for line, end in _iterate_lines(path):
        time, text = _parse_line(line, origin)
        arrived = growth.find_arrival(end)
        if (
            time is None
            and last is not None
            and last.time_source is TimeSource.OWN
            and (arrived is None or arrived == last_arrival)
        ):
            if line.strip() and len(last.text) < LONGEST_LINE:
                last = replace(last, text=f"{last.text}\n{line}"[:LONGEST_LINE])
            continue
        time_source = TimeSource.OWN if time is not None else TimeSource.ARRIVAL
        moment = arrived if time is None else time
        if not line.strip():
            continue
        if moment is None:
            timeless_lines.append(line)
            continue
        if last is not None:
            yield last
        yield from (LogLine(moment, node, False, one[:LONGEST_LINE], TimeSource.NEIGHBOUR) for one in timeless_lines)
        timeless_lines = []
        last, last_arrival = LogLine(moment, node, False, text[:LONGEST_LINE], time_source), arrived
    if last is not None:
        yield last
        yield from (LogLine(last.time, node, False, one[:LONGEST_LINE], TimeSource.NEIGHBOUR) for one in timeless_lines)


@dataclass(frozen=True)
class _FileGrowth:
    """Sizes of a file over time: times in nanoseconds since the run began, and sizes, both ascending."""

    times: Sequence[int] = ()
    sizes: Sequence[int] = ()

    @classmethod
    def read(cls, path: Path, origin: Origin) -> Self:
        """Reads the sizes. Returns no sizes if they were not recorded, or if the file shrank, which makes them
        ambiguous."""
        file = path.parents[1] / GROWTH
        try:
            known = {} if leads_outside(file, path.parents[2]) else read_json(file, _Growth)
        except (OSError, msgspec.MsgspecError):
            return cls()
        known_sizes = known.get(path.parent.name, {}).get(path.name, [])
        sizes = [size for _, size in known_sizes]
        if sizes != sorted(sizes) or not all(abs(moment) < LATEST for moment, _ in known_sizes):
            return cls()
        return cls([int((moment - origin.loop) * NANOSECONDS) for moment, _ in known_sizes], sizes)

    def find_arrival(self, end: int) -> int | None:
        """Returns the time by which all bytes up to ``end`` had arrived; None if unknown."""
        place = bisect_left(self.sizes, end)
        return self.times[place] if place < len(self.times) else None


def _iterate_lines(path: Path) -> Iterator[tuple[str, int]]:
    """Yields each line of the file's tail with the offset of its end."""
    start, data = _read_tail(path)
    whole = data.split(b"\n")
    for number, line in enumerate(whole):
        start += len(line) + (number + 1 < len(whole))
        yield line.decode(errors="replace").rstrip("\r"), start


def _parse_line(line: str, origin: Origin) -> tuple[int | None, str]:
    if (virtual := VIRTUAL.fullmatch(line)) is not None:
        return int((float(virtual[1]) - origin.loop) * NANOSECONDS), virtual[2]
    time, text = parse_line(line, origin.wall)
    return None if time is None else int((time - origin.wall) * NANOSECONDS), text


def _iterate_events(database: HistoryDatabase) -> Iterator[LogLine]:
    rows = database.rows(
        "select time, node, event, key, epoch, controller_epoch, zxid, replica, from_state, to_state, isr, osr, "
        "left(detail, 240) as detail from events order by time limit ?",
        [MOST_EVENTS],
    )
    for row in rows:
        parts = [row["event"], row["key"]]
        parts += [f"{name} {row[column]}" for name, column in COLUMNS if row[column] not in (None, "")]
        parts.append(row["detail"] if row["detail"] not in ("{}", "null", None) else None)
        yield LogLine(int(row["time"]), row["node"], True, " ".join(part for part in parts if part)[:LONGEST_LINE])


COLUMNS: Final = (
    ("epoch", "epoch"),
    ("controller epoch", "controller_epoch"),
    ("zxid", "zxid"),
    ("replica", "replica"),
    ("from", "from_state"),
    ("to", "to_state"),
    ("in sync", "isr"),
    ("out of sync", "osr"),
)
"""Label and name of each column that is shown if it has a value."""


def _read_tail(path: Path) -> tuple[int, bytes]:
    """Returns the file's tail in whole lines, and its offset in the file."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - TAIL)
            file.seek(start)
            data = file.read()
    except OSError:
        return 0, b""
    cut = data.find(b"\n") + 1 if start else 0
    return start + cut, data[cut:]


def _find_distance(moments: Sequence[int], time: int) -> int:
    """Returns the distance to the nearest of some sorted times."""
    place = bisect_left(moments, time)
    return min(abs(moments[index] - time) for index in (place - 1, place) if 0 <= index < len(moments))
