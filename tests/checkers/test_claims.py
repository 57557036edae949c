"""Claims say what a row of evidence has, and name only columns that the evidence has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import EachOperation, OffsetRange, create_views
from assay.checkers.claims import InvolvedOperation, InvolvedOperations, parse_template
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.objects.kinds import KIND_COUNTS

from helpers.judging import opened
from helpers.log_histories import Book, write

INVOLVED = InvolvedOperations({1: InvolvedOperation(12, 5, None), 2: InvolvedOperation(7, 5, 2_500_000_000, "n1")})
ROW: dict[str, Any] = {
    "late_op": 1,
    "first_op": 2,
    "lost_op": None,
    "times": 3,
    "former": 1,
    "kind": "set-add",
    "no": None,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{late_op} and {first_op}", "process 12 and process 7 through n1"),
        ("{first_op:capital}, {first_op:number}, {kind:quoted}", "Process 7 through n1, 2, 'set-add'"),
        ("{first_op:called} to {first_op:returned}", "0.000000005 s to 2.500000000 s"),
        ("{late_op:returned}, {lost_op}, {no}", "no known time, an unknown process, None"),
        ("{times-1}, {times-former}, {first_op-1:time}", "2, 2, 0.000000001 s"),
        ("a[ and {no}][ or {times}].", "a or 3."),
        ("[{no}|{kind}|{times}]", "set-add"),
        ("[kind=set-add?add|read] [times>3?many|times<{times}?few|times={times}?as many]", "add as many"),
        ("[no?a|kind?b] [kind=read?a|{no}] [kind=read?a|times>5?b]", "b None "),
        ("[times>2?[former=1?one|{former}] of {times}]", "one of 3"),
    ],
)
def test_a_template_says_what_the_row_has(template: str, text: str) -> None:
    assert parse_template(template).render(ROW, INVOLVED) == text


@pytest.mark.parametrize("template", ["a]", "[a", "a|b", "{}", "a}", "{a b}", "[times=1 ?a]", "who?"])
def test_a_malformed_template_is_an_error(template: str) -> None:
    with pytest.raises(ValueError, match=r"no meaning|not closed|outside of brackets"):
        parse_template(template)


def test_the_evidence_of_each_check_has_the_columns_that_its_claim_names(tmp_path: Path) -> None:
    with opened(write(tmp_path / "history", Book().rows)) as engine:
        create_views(engine, (KIND_COUNTS,))
        register_contract(engine, Contract())
        for family in FAMILIES:
            create_views(engine, family.views)
            if family.prepare is not None:
                family.prepare(engine)
            for check in family.checks:
                create_views(engine, (*check.views, *check.evidence_views))
                known = set(engine.arrow(check.evidence).column_names)
                texts = (check.claim, check.more, *(one for one in check.about if isinstance(one, str)))
                named = {name for text in texts for name in parse_template(text).find_columns()}
                for one in check.about:
                    named |= {one.first, one.last} if isinstance(one, OffsetRange) else set()
                    named |= {one.column} if isinstance(one, EachOperation) else set()
                named |= {*check.operations, *check.moments, *([check.time] if check.time else [])}
                assert named <= known, check.anomaly
