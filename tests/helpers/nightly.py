"""Which cases of a test run by day, in ``make test``; the nightly run tries the others too."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def by_night(*values: object) -> Any:
    """Returns a case that only the nightly run executes."""
    return pytest.param(*values, marks=pytest.mark.long)


def a_share_by_day(step: int, cases: Iterable[Any]) -> list[Any]:
    """Returns all cases. Only the first and every ``step``-th after it run by day. A tuple has several values."""
    return [
        (by_night(*case) if isinstance(case, tuple) else by_night(case)) if number % step else case
        for number, case in enumerate(cases)
    ]


def some_by_day(cases: Iterable[Any], day: Collection[Any]) -> list[Any]:
    """All of ``cases``, each with one value, in their order; those that are not in ``day`` are of the night.

    ValueError: ``day`` names what is no case, so that less would run by day than its author thinks.
    """
    listed = list(cases)
    if strangers := [one for one in day if one not in listed]:
        raise ValueError(f"not among the cases: {strangers}")
    return [case if case in day else by_night(case) for case in listed]
