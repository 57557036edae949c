"""Hooks by which a ``conftest.py`` or a plugin adds faults, checks, models and systems to a session.

They are called once in a session, before tests are collected: so a ``conftest.py`` that has one must lie in the root
folder, or in the folder that pytest is given, as for ``pytest_addoption``. docs/cookbook/extending.md has examples.
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
    """Faults for ``--nemesis``, in addition to those that come along; ``--nemesis-list`` shows them.

    A name that is taken already is a usage error.
    """
    raise NotImplementedError("a specification")


@pytest.hookspec
def pytest_assay_checks() -> Sequence[Family]:
    """Families of checks that judge every run of the session, after those that come along.

    A family applies to the histories that have rows for it. The anomalies of its checks may stand in contracts; one
    that is found and that the contract does not name makes a run unknown.
    """
    raise NotImplementedError("a specification")


@pytest.hookspec
def pytest_assay_models() -> Sequence[Model]:
    """Sequential models that experiments may name: ``@experiment(..., model="account")``."""
    raise NotImplementedError("a specification")


@pytest.hookspec
def pytest_assay_systems() -> Sequence[System]:
    """Systems whose events ``--nemesis-list`` shows, in addition to the broker's.

    An experiment names its own system, and needs no hook for it.
    """
    raise NotImplementedError("a specification")
