"""What the nodes said, in their event logs and in their processes' own, on the run's axis: for the reader to look up.

Nodes' clocks are taken to be the harness's, so lines of different nodes stand in an order that explains and never
proves. Of a long run the lines nearest to a finding or to a change of a fault are kept, at most ``MOST_LINES``.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assay.harness.core.stamps import Origin
from assay.reports.log_times import written
from assay.reports.recording import Recording

MOST_LINES: Final = 5_000
MOST_EVENTS: Final = 50_000
LONGEST: Final = 240
"""Characters of a line that are kept."""
TAIL: Final = 4 << 20
"""Bytes of one log file that are read, its last."""
NANOSECONDS: Final = 1_000_000_000
VIRTUAL: Final = re.compile(r"\s*(\d+\.\d{6}) (.*)")


@dataclass(frozen=True, order=True)
class LogLine:
    """One line; ``time`` in nanoseconds since the run began. ``event``: from an event log."""

    time: int
    node: str
    event: bool
    text: str


@dataclass(frozen=True)
class LogLines:
    """Sorted by time. ``omitted``: how many more lines there were."""

    lines: tuple[LogLine, ...] = ()
    omitted: int = 0


def node_logs(recording: Recording, logs: Path, origin: Origin | None, moments: Sequence[int]) -> LogLines:
    """``logs``: the run's ``logs/``; without ``origin`` its files cannot be placed, and only events are shown."""
    found = [*_events(recording)]
    if origin is not None:
        for path in sorted(logs.glob("*/*.log")):
            found += read_log(path, path.parent.name, origin)
    found.sort()
    if len(found) <= MOST_LINES:
        return LogLines(tuple(found))
    near = sorted(moments) or [0]
    kept = sorted(sorted(found, key=lambda line: _distance(near, line.time))[:MOST_LINES])
    return LogLines(tuple(kept), len(found) - len(kept))


def read_log(path: Path, node: str, origin: Origin) -> Iterator[LogLine]:
    """Lines that begin with a time, each with the lines after it that have none (a traceback)."""
    last: LogLine | None = None
    for line in _tail(path).splitlines():
        time, text = _placed(line, origin)
        if time is not None:
            if last is not None:
                yield last
            last = LogLine(time, node, False, text[:LONGEST])
        elif last is not None and line.strip() and len(last.text) < LONGEST:
            last = LogLine(last.time, node, False, f"{last.text}\n{line}"[:LONGEST])
    if last is not None:
        yield last


def _placed(line: str, origin: Origin) -> tuple[int | None, str]:
    if (virtual := VIRTUAL.fullmatch(line)) is not None:
        return int((float(virtual[1]) - origin.loop) * NANOSECONDS), virtual[2]
    time, text = written(line, origin.wall)
    return None if time is None else int((time - origin.wall) * NANOSECONDS), text


def _events(recording: Recording) -> Iterator[LogLine]:
    rows = recording.rows(
        "select time, node, event, key, epoch, controller_epoch, zxid, replica, from_state, to_state, isr, osr, "
        "left(detail, 240) as detail from events order by time limit ?",
        [MOST_EVENTS],
    )
    for row in rows:
        parts = [row["event"], row["key"]]
        parts += [f"{name} {row[column]}" for name, column in COLUMNS if row[column] not in (None, "")]
        parts.append(row["detail"] if row["detail"] not in ("{}", "null", None) else None)
        yield LogLine(int(row["time"]), row["node"], True, " ".join(part for part in parts if part)[:LONGEST])


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
"""What stands before each, if it has a value."""


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _distance(moments: Sequence[int], time: int) -> int:
    """To the nearest of some sorted moments."""
    place = bisect_left(moments, time)
    return min(abs(moments[index] - time) for index in (place - 1, place) if 0 <= index < len(moments))
