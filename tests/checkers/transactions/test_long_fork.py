"""Long forks: found iff two reads of a group see two writes in opposite orders, as Jepsen's checker defines them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding
from assay.workloads.generic import long_fork

from helpers.judging import judge
from helpers.log_histories import Row, effect, write

KEYS = range(3)
LATER = 10_000


def rows(group: int, written: Sequence[str], reads: Sequence[Sequence[bool]]) -> list[Row]:
    """Outcomes of the writes of a group's keys; and what each read saw of them. All overlap."""
    first, made = 100 * group, []
    for key, outcome in zip(KEYS, written, strict=True):
        ret = None if outcome == "info" else LATER + first + key
        given = {"value": 1, "outcome": outcome, "process": first + key}
        made.append(effect(first + key, 0, "txn-write", f"{group}-{key}", first + key, ret, **given))
    for turn, seen in enumerate(reads, 10):
        op = first + turn
        made += [
            effect(op, key, "txn-read", f"{group}-{key}", op, LATER + op, value=1 if there else None, process=op)
            for key, there in zip(KEYS, seen, strict=True)
        ]
    return made


def found(history: Sequence[Row]) -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        judgement = judge(write(Path(folder) / "history", list(history)), Contract())
    assert set(judgement.anomalies) <= {"G-nonadjacent"}
    return list(judgement.findings)


FORK = [(True, False, False), (False, True, False)]


@pytest.mark.parametrize("written", ["ok", "info"])
def test_a_long_fork_is_named(written: str) -> None:
    (finding,) = found(rows(0, [written, written, "ok"], FORK))
    assert finding.anomaly == "G-nonadjacent"
    assert finding.claim.startswith("4 transactions go round in a circle, a long fork: ")
    assert set(finding.operations) == {0, 1, 10, 11}


@pytest.mark.parametrize(
    "reads",
    [
        [(True, False, False), (True, True, False)],
        [(True, False, False), (True, False, False)],
        [(False, False, False), (True, True, True), (False, True, False), (True, True, False)],
    ],
    ids=["one saw both", "both saw the same", "one after the other"],
)
def test_its_neighbour_is_not(reads: list[tuple[bool, ...]]) -> None:
    assert found(rows(0, ["ok", "ok", "ok"], reads)) == []


seen = st.tuples(*(st.booleans() for _ in KEYS))
groups = st.lists(
    st.tuples(st.tuples(*(st.sampled_from(["ok", "ok", "info"]) for _ in KEYS)), st.lists(seen, max_size=4)),
    min_size=1,
    max_size=15,
)


@settings(max_examples=5, phases=set(Phase) - {Phase.shrink})
@given(groups)
def test_one_is_found_iff_two_reads_cannot_be_put_in_order(
    drawn: list[tuple[tuple[str, ...], list[tuple[bool, ...]]]],
) -> None:
    history = [row for group, (written, reads) in enumerate(drawn) for row in rows(group, written, reads)]
    forked = {
        group
        for group, (_, reads) in enumerate(drawn)
        if any(
            any(a > b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))
            for one, other in combinations(reads, 2)
        )
    }
    assert {finding.operations[0] // 100 for finding in found(history)} == forked


def test_a_group_is_read_with_what_was_written_last() -> None:
    assert [micro[1] for micro in long_fork.read_group(4)] == [3, 4, 5]
