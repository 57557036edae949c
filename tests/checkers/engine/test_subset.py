"""The checks' SQL keeps to the subset that DuckDB and Spark SQL share and answer alike."""

from __future__ import annotations

import re

import pytest

from assay.checkers.check import View
from assay.checkers.families import FAMILIES
from assay.checkers.groups.holds import HOLD_VIEWS
from assay.checkers.objects.counters import COUNTER_VIEWS
from assay.checkers.objects.kinds import KINDS
from assay.checkers.objects.max_registers import MAX_VIEWS
from assay.checkers.objects.queues import QUEUE_VIEWS
from assay.checkers.objects.sets import SET_VIEWS
from assay.checkers.register.chains import climb_round, climb_start, kept_end, kept_round, kept_start
from assay.checkers.register.views import CLUSTER_VIEWS, PLACE_VIEWS, SOURCE_VIEWS
from assay.checkers.transactions.edges import CANDIDATE_EDGES, CANDIDATE_NODES, EDGE_VIEWS
from assay.checkers.transactions.views import SOURCE_VIEWS as TRANSACTION_VIEWS
from assay.harness.core.history import SCHEMAS, format_1

CHECKS = [check for family in FAMILIES for check in family.checks]
ROUNDS = (*kept_start(), *kept_round(0, "register_certain"), *kept_end(1), *climb_start(), *climb_round(0))

TEXTS = [
    *(view for family in FAMILIES for view in family.views),
    *(*SOURCE_VIEWS, *CLUSTER_VIEWS, *PLACE_VIEWS, *ROUNDS, *HOLD_VIEWS),
    *(View(text.name, text.sql) for name in SCHEMAS for text in format_1.views(name)),
    *(KINDS, *COUNTER_VIEWS, *MAX_VIEWS, *SET_VIEWS, *QUEUE_VIEWS),
    *(*TRANSACTION_VIEWS, *EDGE_VIEWS),
    *(View("candidate edges", CANDIDATE_EDGES), View("candidate nodes", CANDIDATE_NODES)),
    *(view for check in CHECKS for view in (*check.views, *check.evidence_views)),
    *(View(f"evidence of {check.anomaly}", check.evidence) for check in CHECKS),
    *(View(f"examined of {check.anomaly}", check.examined) for check in CHECKS),
]

FORBIDDEN = (
    r"\brange\b", r"/", r"\bignore nulls\b", r"\bexclude\b", r"\bsemi\b", r"\bany_value\b", r"\bmax_by\b",
    r"\bmin_by\b", r"\barg_max\b", r"\barg_min\b", r"\bstring_agg\b", r"\bstruct\b", r"\brecursive\b", r"::",
    r"\bdouble\b", r"\bfloat\b", r"count\(distinct", r"\bgroup by all\b",
)  # fmt: skip


@pytest.mark.parametrize("view", TEXTS, ids=lambda view: view.name)
def test_only_shared_constructs(view: View) -> None:
    text = " ".join(view.sql.lower().split())
    for pattern in FORBIDDEN:
        assert not re.search(pattern, text), pattern
    for terms in re.findall(r"order by ((?:[\w.]+(?: nulls \w+)?(?:, )?)+)", text):
        assert all(" nulls " in term for term in terms.strip(", ").split(", ")), terms
    for window in re.findall(r"over \(([^)]*)\)", text):
        assert "order by" in window
    for frame in re.findall(r"(?:sum|max|min)\([^()]*(?:\([^()]*\)[^()]*)*\) over \(([^)]*)\)", text):
        assert "rows between unbounded preceding" in frame
    for before in re.findall(r"(.{12})sum\(", text):
        assert before.endswith("cast(") or before.endswith("coalesce("), f"{before}sum( is not cast to bigint"
