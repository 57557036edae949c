"""For all tests: pytest's own means of testing plugins, no time limits per Hypothesis example, Ctrl-C, and one Spark.

Time limits per example fail on a busy machine and say nothing about the property. A shell has what it starts in the
background ignore Ctrl-C; tests that send it to their own process need it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from assay.checkers.engine import Engines, EngineUnavailable

pytest_plugins = ("pytester",)

settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark comes first: xdist then gives all of it to one process, so that one JVM is started, not two."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where Spark cannot run, what needs it is skipped, saying what to install."""
    if item.get_closest_marker("spark") is not None:
        try:
            Engines("spark").check()
        except EngineUnavailable as lacking:
            pytest.skip(str(lacking))


@pytest.fixture(scope="session")
def application() -> Iterator[Any]:
    """One Spark for all tests of a session: there cannot be two in a process. For tests that are marked ``spark``."""
    from assay.checkers.engine.spark_application import SparkApplication  # imports pyspark

    with SparkApplication(quick=True) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A standalone cluster of Spark. For tests that are marked ``spark`` and ``long``."""
    from helpers.standalone import standalone_cluster

    with standalone_cluster(tmp_path_factory.mktemp("conf"), tmp_path_factory.mktemp("events")) as found:
        yield found
