"""Chromium that all tests of pages share, because its start takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.browser import chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """It logs what it asks for. For tests that are marked ``browser``."""
    with chromium(tmp_path_factory.mktemp("profile"), requests=True) as driver:
        yield driver
