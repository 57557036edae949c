"""For all tests: pytest's own means of testing plugins, no time limits per Hypothesis example, Ctrl-C, and one Spark.

Time limits per example fail on a busy machine and say nothing about the property. A shell has what it starts in the
background ignore Ctrl-C; tests that send it to their own process need it.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ("pytester",)

settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


Application = Any  # pyspark is imported only where it is there


@pytest.fixture(scope="session")
def application() -> Iterator[Application]:
    """One Spark for all tests of a session: there cannot be two in a process."""
    if find_spec("pyspark") is None:
        pytest.skip("there is no pyspark; pip install pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java; apt-get install openjdk-17-jre-headless")
    from checkers.engine.spark import SparkApplication

    with SparkApplication(quick=True) as running:
        yield running
