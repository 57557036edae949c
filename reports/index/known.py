"""``known-failures.toml``: known failures, each with a reason and an expiry date.

    [[failure]]
    system = "broker"
    workload = "test_log"
    anomalies = ["lost-write"]
    reason = "acknowledged before the fsync; being repaired"
    expires = 2026-12-24

An entry (a *mark*) covers the failures with exactly these anomalies, through its expiry date. The page still shows
these failures.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec

from assay.harness.core.files import decode_toml, read_file

Text = Annotated[str, msgspec.Meta(min_length=1, pattern=r"\S")]


class KnownFailuresError(ValueError):
    """Raised for an invalid file. The message names the place in the file."""


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entry of the file. ``expires``: the last day on which the entry counts."""

    system: Text
    workload: Text
    anomalies: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    reason: Text
    expires: date

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        return self.system, self.workload, tuple(sorted(self.anomalies))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    failure: list[dict[str, Any]] = []


@dataclass(frozen=True)
class KnownFailures:
    """The marks, and the current day."""

    marks: tuple[Mark, ...] = ()
    today: date = date.min

    def find_mark(self, system: str, workload: str, anomalies: Iterable[str]) -> Mark | None:
        wanted = system, workload, tuple(sorted(anomalies))
        return next((mark for mark in self.marks if mark.key == wanted), None)

    def is_expired(self, mark: Mark) -> bool:
        return mark.expires < self.today

    def unused_marks(self, failures: Collection[tuple[str, str, tuple[str, ...]]]) -> list[Mark]:
        """Returns the marks that cover none of these failures."""
        return [mark for mark in self.marks if mark.key not in failures]


def read_known(path: Path, today: date) -> KnownFailures:
    """Reads the file. Raises :class:`KnownFailuresError` or ``FileNotFoundError``."""
    try:
        entries = msgspec.convert(decode_toml(read_file(path)), _File).failure
    except (ValueError, msgspec.ValidationError) as error:
        raise KnownFailuresError(f"{path}: {error}; each failure is a [[failure]] table") from error
    marks: list[Mark] = []
    for number, entry in enumerate(entries, start=1):
        try:
            # msgspec would accept text as a date, and truncate a datetime to one.
            if type(entry.get("expires", date.min)) is not date:
                raise KnownFailuresError("`expires` must be a date without quotes, such as 2026-12-24")
            mark = msgspec.convert(entry, Mark)
            if len(set(mark.anomalies)) < len(mark.anomalies) or mark.key in {other.key for other in marks}:
                raise KnownFailuresError("it names an anomaly twice, or repeats an earlier mark")
        except (KnownFailuresError, msgspec.ValidationError) as error:
            raise KnownFailuresError(f"{path}: [[failure]] number {number}: {error}") from error
        marks.append(mark)
    return KnownFailures(tuple(marks), today)
