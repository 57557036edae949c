"""Puts the tests of one kind of object next to each other.

Each process computes the planted violations of a kind once (``helpers.planted``). A process of xdist takes a range of
neighbouring tests, so it computes them for few kinds.
"""

from __future__ import annotations

import pytest

from helpers.plant_histories import KINDS, Kind


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the tests with a kind by their kind. They keep the places of such tests among all tests."""
    places = [place for place, item in enumerate(items) if find_kind(item) is not None]
    numbers = {kind.name: number for number, kind in enumerate(KINDS)}
    by_kind = sorted((items[place] for place in places), key=lambda item: numbers[find_kind(item) or ""])
    for place, item in zip(places, by_kind, strict=True):
        items[place] = item


def find_kind(item: pytest.Item) -> str | None:
    """Returns the name of the kind that is a parameter of the test."""
    callspec = getattr(item, "callspec", None)
    kind = None if callspec is None else callspec.params.get("kind")
    return kind.name if isinstance(kind, Kind) else None
