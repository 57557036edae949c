"""One Chromium for all tests of pages: to start it takes longer than most of what is looked at in it."""

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
