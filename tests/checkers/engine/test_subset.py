"""The checks' SQL keeps to the subset that DuckDB, Spark SQL and SQLite share and answer alike."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pkgutil import walk_packages

import pytest

from assay import checkers
from assay.checkers.check import View
from assay.checkers.engine.sqlite import _connect, translate
from assay.checkers.families import FAMILIES
from assay.checkers.register.chains import end_kept, run_climb_round, run_kept_round, start_climb, start_kept
from assay.checkers.transactions.edges import CANDIDATE_EDGES, CANDIDATE_NODES
from assay.harness.core.history import SCHEMAS, translation

CHECKS = [check for family in FAMILIES for check in family.checks]
ELSEWHERE = ("assay.checkers.engine", "assay.checkers.linearizability")
"""Packages without SQL of checks."""

ROUNDS = (*start_kept(), *run_kept_round(0, "register_certain"), *end_kept(1), *start_climb(), *run_climb_round(0))


def declared() -> Iterator[View]:
    """Every view of the modules of checks, declared by itself or in a list."""
    for found in walk_packages(checkers.__path__, f"{checkers.__name__}."):
        if not found.name.startswith(ELSEWHERE):
            for value in vars(import_module(found.name)).values():
                yield from (one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, View))


VIEWS = (
    *declared(),
    *ROUNDS,
    *(View(f"{one.name} of {n}", one.sql) for n in (4,) for name in SCHEMAS for one in translation.translate(name, n)),
    *(view for check in CHECKS for view in (*check.views, *check.evidence_views)),
    *(View("candidate edges", CANDIDATE_EDGES), View("candidate nodes", CANDIDATE_NODES)),
    *(View(f"whether {family.name} applies", family.applies) for family in FAMILIES),
    *(View(f"evidence of {check.anomaly}", check.evidence) for check in CHECKS),
    *(View(f"examined of {check.anomaly}", check.examined) for check in CHECKS),
)
TEXTS = list({view.name: view for view in VIEWS}.values())

FORBIDDEN = (
    r"\brange\b", r"/", r"\bignore nulls\b", r"\bexclude\b", r"\bsemi\b", r"\bany_value\b", r"\bmax_by\b",
    r"\bmin_by\b", r"\barg_max\b", r"\barg_min\b", r"\bstring_agg\b", r"\bstruct\b", r"\brecursive\b", r"::",
    r"\bdouble\b", r"\bfloat\b", r"count\(distinct", r"\bgroup by all\b",
)  # fmt: skip


@pytest.mark.parametrize("view", TEXTS, ids=lambda view: view.name)
def test_only_shared_constructs(view: View) -> None:
    text = " ".join(view.sql.lower().split())
    said = re.sub(r"'[^']*'", "''", text)
    for pattern in FORBIDDEN:
        assert not re.search(pattern, said), pattern
    for terms in re.findall(r"order by ((?:[\w.]+(?: nulls \w+)?(?:, )?)+)", text):
        assert all(" nulls " in term for term in terms.strip(", ").split(", ")), terms
    for window in re.findall(r"over \(([^)]*)\)", text):
        assert "order by" in window
    for frame in re.findall(r"(?:sum|max|min)\([^()]*(?:\([^()]*\)[^()]*)*\) over \(([^)]*)\)", text):
        assert "rows between unbounded preceding" in frame
    for before in re.findall(r"(.{12})sum\(", text):
        assert before.endswith("cast(") or before.endswith("coalesce("), f"{before}sum( is not cast to bigint"


@pytest.fixture(scope="module")
def lite() -> Iterator[sqlite3.Connection]:
    with closing(_connect()) as connection:
        yield connection


@pytest.mark.parametrize("view", TEXTS, ids=lambda view: view.name)
def test_sqlite_can_read_it(view: View, lite: sqlite3.Connection) -> None:
    said = "no such table: "
    try:
        lite.execute(f"explain {translate(view.sql)}")
    except sqlite3.OperationalError as error:
        said = str(error)
    assert said.startswith("no such table: "), said
