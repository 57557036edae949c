"""Hooks by which a ``conftest.py`` or a plugin adds faults, checks, models and systems to a session.

They are called once per session, before tests are collected. A ``conftest.py`` that implements one must be in the root
folder, or in the folder that pytest is given, as for ``pytest_addoption``. docs/extending.md has examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from assay.checkers.check import Family
    from assay.checkers.linearizability import Model
    from assay.cluster.system import System
    from assay.nemesis.faults.fault import Fault


@pytest.hookspec
def pytest_assay_nemeses() -> Sequence[Fault]:
    """Returns faults for ``--nemesis`` in addition to the built-in ones; ``--nemesis-list`` shows them.

    A name that is already in use is a usage error.
    """
    raise NotImplementedError("a specification")


@pytest.hookspec
def pytest_assay_checks() -> Sequence[Family]:
    """Returns families of checks that judge every run of the session, after the built-in ones.

    A family applies to histories that have rows for it. Contracts may name the anomalies of its checks. An anomaly that
    is found but not in the contract makes a run unknown.
    """
    raise NotImplementedError("a specification")


@pytest.hookspec
def pytest_assay_models() -> Sequence[Model]:
    """Returns sequential models that experiments may name: ``@experiment(..., model="account")``."""
    raise NotImplementedError("a specification")


@pytest.hookspec
def pytest_assay_systems() -> Sequence[System]:
    """Returns systems whose events ``--nemesis-list`` shows in addition to the broker's.

    An experiment names its own system and needs no hook for it.
    """
    raise NotImplementedError("a specification")
