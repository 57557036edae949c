"""Offsets that are kept for a time: the three anomalies, their nearest legal neighbours, and many small histories."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.expiry import EXPIRY
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding

from helpers.expiry_histories import keep, kept_history, look, part, wrong
from helpers.judging import opened
from helpers.log_histories import Row, write

CONTRACT = Contract(retention_deadline=5.0)
MEMBER = {"generation": 3, "owner": "m"}


def found(folder: Path, rows: list[Row]) -> list[Finding]:
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, CONTRACT)
        reported = []
        for check in EXPIRY.checks:
            create_views(engine, check.views)
            reported += read_findings(engine, check)
        return reported


FOR_EVER = (2**63 - 1) // 1000
"""Seconds, of which the milliseconds fit into 64 bits and the nanoseconds do not."""

HAVE = {
    "gone before its time": ("early-expiry", [keep(1, 7, 3, (0, 1)), look(2, None, (1.5, 2))]),
    "a later one gone at the time of the former": (
        "early-expiry",
        [keep(1, 7, 1, (0, 0.5)), keep(2, 8, 9, (0.9, 1.2)), look(3, None, (1.5, 2))],
    ),
    "gone, though it was to stay for ever": ("early-expiry", [keep(1, 7, FOR_EVER, (0, 1)), look(2, None, (1.5, 2))]),
    "gone while the group had a member": (
        "early-expiry",
        [keep(1, 7, 1, (0, 1), **MEMBER), look(2, None, (3, 4)), keep(3, 8, 1, (5, 6), **MEMBER)],
    ),
    "gone although it was renewed": (
        "early-expiry",
        [keep(1, 7, 0.3, (0, 1)), keep(1, 8, 9, (0, 1)) | {"sub": 1}, look(2, None, (1.5, 2))],
    ),
    "back after it was gone": (
        "revived-offset",
        [keep(1, 7, 1, (0, 1)), look(2, None, (3, 4)), look(3, 7, (5, 6))],
    ),
    "back after a later one": (
        "revived-offset",
        [keep(1, 7, 9, (0, 1)), keep(2, 8, 9, (2, 3)), look(3, 7, (4, 5))],
    ),
    "one of unknown outcome that was seen, gone, and back": (
        "revived-offset",
        [keep(1, 7, 1, (0, None), outcome="info"), look(2, 7, (1, 2)), look(3, None, (3, 4)), look(4, 7, (5, 6))],
    ),
    "there long after its time": (
        "overdue-offset",
        [keep(1, 7, 1, (0, 1)), look(2, 7, (8, 9), phase="drain")],
    ),
    "there long after its time, and after its member had parted": (
        "overdue-offset",
        [keep(1, 7, 1, (0, 1), **MEMBER), part(2, (3, 4)), look(3, 7, (20, 21), phase="drain")],
    ),
}  # fmt: skip
HAVE_NOT = {
    "there, as it was to stay for ever": [keep(1, 7, FOR_EVER, (0, 1)), look(2, 7, (30, 31), phase="drain")],
    "gone when its time was over": [keep(1, 7, 3, (0, 1)), look(2, None, (2, 3.1))],
    "gone before it was committed, perhaps": [keep(1, 7, 3, (0, 1)), look(2, None, (0.5, 2))],
    "replaced by one that may go": [keep(1, 7, 9, (0, 1)), keep(2, 8, 1, (0.5, 1.5)), look(3, None, (2, 3))],
    "replaced by one of unknown outcome that may go": [
        keep(1, 7, 9, (1, 2)), keep(2, 8, 1, (0, None), outcome="info"), look(3, None, (3, 4)),
    ],
    "gone while it was renewed": [
        keep(1, 6, 9, (0, 0.1)), keep(2, 7, 0.3, (0.2, 1)), keep(2, 8, 9, (0.2, 1)) | {"sub": 1},
        look(3, None, (0.5, 2)),
    ],
    "renewed with an unknown outcome": [
        keep(1, 7, 0.3, (0, 1)), keep(1, 8, 9, (0, 1), outcome="info") | {"sub": 1}, look(2, None, (1.5, 2)),
    ],
    "its member was another one later": [
        keep(1, 7, 1, (0, 1), **MEMBER), look(2, None, (3, 4)), keep(3, 8, 1, (5, 6), generation=3, owner="n"),
    ],
    "its member's later commit was refused": [
        keep(1, 7, 1, (0, 1), **MEMBER), look(2, None, (3, 4)), keep(3, 8, 1, (5, 6), outcome="fail", **MEMBER),
    ],
    "gone in another partition": [
        keep(1, 7, 1, (0, 1)), look(2, None, (3, 4), key="g/t-1"), look(3, 7, (5, 6)),
    ],
    "of unknown outcome, late": [
        keep(1, 7, 9, (0, None), outcome="info"), look(2, None, (3, 4)), look(3, 7, (5, 6)),
    ],
    "the two looks overlap": [keep(1, 7, 1, (0, 1)), look(2, None, (3, 5)), look(3, 7, (4, 6))],
    "at the end, soon after its time": [keep(1, 7, 1, (0, 1)), look(2, 7, (5, 6), phase="drain")],
    "at the end, when another one has to stay": [
        keep(1, 7, 1, (0, 1)), keep(2, 8, 90, (0, 1)), look(3, 7, (8, 9), phase="drain"),
    ],
    "at the end, soon after its member has parted": [
        keep(1, 7, 1, (0, 1), **MEMBER), part(2, (16, 17), outcome="fail"), look(3, 7, (20, 21), phase="drain"),
    ],
    "at the end, when it is not known when its member parted": [
        keep(1, 7, 1, (0, 1), **MEMBER), part(2, (17, None), outcome="info"), look(3, 7, (20, 21), phase="drain"),
    ],
    "long after its time, under faults": [keep(1, 7, 1, (0, 1)), look(2, 7, (30, 31))],
}  # fmt: skip


@pytest.mark.parametrize(("anomaly", "rows"), HAVE.values(), ids=HAVE)
def test_it_is_found(anomaly: str, rows: list[Row], tmp_path: Path) -> None:
    assert [finding.anomaly for finding in found(tmp_path, rows)] == [anomaly]


@pytest.mark.parametrize("rows", HAVE_NOT.values(), ids=HAVE_NOT)
def test_its_neighbour_is_not(rows: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows) == []


def test_a_finding_names_look_and_commit(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, HAVE["gone before its time"][1])
    assert finding.operations == (2, 1)
    assert finding.claim == (
        "process 2 found nothing of g/t-0 by 2.000 s, although process 1 had committed by 1.000 s what had to stay "
        "until 3.000 s at least, and nothing that may go earlier came after it."
    )


def test_it_says_what_looking_at_every_pair_says(tmp_path: Path) -> None:
    histories = [
        kept_history(f"g/t-{number}", random.Random(number), number * 100, broken=number % 2 == 1)
        for number in range(300)
    ]
    expected = [wrong(rows) for rows in histories]
    assert not any(expected[::2]), "what a correct coordinator answers"
    assert {anomaly for some in expected for anomaly, _, _ in some} == {"early-expiry", "revived-offset"}
    with opened(write(tmp_path / "history", [one for rows in histories for one in rows])) as engine:
        register_contract(engine, CONTRACT)
        reported = set()
        for check in EXPIRY.checks:
            create_views(engine, check.views)
            reported |= {
                (check.anomaly, one["key"], one["read_op"]) for one in engine.rows(f"select * from {check.found}")
            }
    assert reported == set().union(*expected)
