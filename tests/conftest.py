"""For all tests: pytest's own means of testing plugins, a time limit for each test, Ctrl-C, one Spark, and --fast.

Time limits per example in Hypothesis fail on a busy machine and say nothing about the property. A shell has what it
starts in the background ignore Ctrl-C, and nohup does so with SIGHUP. Tests send both signals to their own process.
"""

from __future__ import annotations

import gc
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from assay.checkers.engine import Engines, EngineUnavailable, SQLite

from helpers.examples import ALL
from helpers.judging import Opens

pytest_plugins = ("pytester", "helpers.time_limit")

settings.register_profile("deep", deadline=None, max_examples=20 * ALL)
settings.register_profile("night", deadline=None, max_examples=ALL)
settings.register_profile("day", deadline=None, max_examples=12)
settings.load_profile("day")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


TAKES_LONG: Final = re.compile(
    r"^(?:import subprocess"
    r"|from helpers\.(?:attempts|broker_process|judging|live_cluster|night_runs|process_tree|run_folders|standalone)\b"
    r"|from assay\.(?:harness\.(?:run\.(?:attempt|trial)|search|synthetic|cli\.main)|checkers\.linearizability)\b"
    r"|from assay\.checkers\.(?:engine|judging\.judge) import|from helpers\.(?:logs|power_histories)\b)"
    r"|\b(?:pytester|toy_project)\b"
    r"|^pytestmark = .*\b(?:slow|spark|browser|docker)\b",
    re.MULTILINE,
)
"""In the text of a test file: it starts processes, plays whole runs, searches, or judges histories."""
NOT_FAST: Final = ("docker", "browser", "spark", "slow", "long", "alone")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="only test files that start no process, play no run and judge no history"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """After collection, because importing some packages starts processes. The xdist controller starts workers, whose
    own loop is the first result of this hook.
    """
    if session.config.getoption("--fast") and hasattr(session.config, "workerinput"):
        sys.addaudithook(_no_process)


def _no_process(event: str, _arguments: object) -> None:
    if event == "subprocess.Popen":
        raise AssertionError("a test of `make check` starts a process: mark it slow, or import subprocess in its file")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not even importing the others makes half of what ``make check`` saves. None: others decide."""
    fast = config.getoption("--fast") and collection_path.name.startswith("test_")
    return True if fast and TAKES_LONG.search(collection_path.read_text()) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Moves tests that need Spark or Chromium to the front. xdist then gives all of them to one process, which starts
    one JVM and one browser. Others take no tests from the front of a process that is behind.
    """
    if config.getoption("--fast"):
        items[:] = [item for item in items if not any(item.get_closest_marker(name) for name in NOT_FAST)]
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("spark", "browser")])


def pytest_collection_finish() -> None:
    """Exempts existing objects from garbage collection, which nested runs of pytest start five times each."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """The interpreter's end is to find it."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests that need Spark if it cannot run, and says what to install."""
    if item.get_closest_marker("spark") is not None:
        try:
            Engines("spark").check()
        except EngineUnavailable as lacking:
            pytest.skip(str(lacking))


@pytest.fixture(scope="session")
def application() -> Iterator[Any]:
    """Spark for all tests of a session, because a process cannot have two. For tests that are marked ``spark``."""
    from assay.checkers.engine.spark_application import SparkApplication  # imports pyspark

    with SparkApplication(quick=True) as running:
        jvm, folder = running._gateway.proc, running._folder
        yield running
    assert jvm.poll() is not None, "Spark's JVM is left behind"
    assert not folder.exists(), "Spark's files are left behind"


@pytest.fixture(params=["sqlite", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def other(request: pytest.FixtureRequest) -> Opens:
    """An engine that says what DuckDB says."""
    if request.param == "sqlite":
        return lambda effects: SQLite()
    running = request.getfixturevalue("application")
    return lambda effects: running.engine(effects=effects)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A standalone cluster of Spark. For tests that are marked ``spark`` and ``long``."""
    from helpers.standalone import standalone_cluster

    with standalone_cluster(tmp_path_factory.mktemp("conf"), tmp_path_factory.mktemp("events")) as found:
        yield found
