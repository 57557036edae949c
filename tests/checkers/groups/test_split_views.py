"""A claim by an older view than another had claimed by: found, and its nearest legal neighbours are not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.split_views import SPLIT_BRAIN
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding

from helpers.judging import opened
from helpers.log_histories import Row, write
from helpers.nightly import by_night
from helpers.view_histories import claim, random_claims, split


def found(folder: Path, rows: list[Row]) -> list[Finding]:
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, Contract())
        create_views(engine, SPLIT_BRAIN.views)
        return read_findings(engine, SPLIT_BRAIN)


NEWER = claim(1, "b", seen=20, made=21, shares={"t-0": "c", "t-1": "b"})
"""B claims t-1 by the later view, in which t-0 is C's."""


def test_a_claim_by_an_older_view_than_another_had_claimed_by_is_found(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, [*NEWER, *claim(2, "a", seen=10, made=22, shares={"t-0": "a", "t-1": "b"})])
    assert (finding.anomaly, finding.key, finding.operations) == ("split-brain", "t-0", (2, 1))
    assert finding.claim == (
        "a claimed t-0 of g (zxid 22, reported by process 2 at 3.000 s) by the members as of zxid 10, although "
        "process 1 had claimed before it (zxid 21) by those as of zxid 20, by which it is for c."
    )


NEIGHBOURS = {
    "before the other had claimed": {"seen": 10, "made": 20, "shares": {"t-0": "a"}},
    "by the same view": {"seen": 20, "made": 22, "shares": {"t-0": "a"}},
    "by a later view, while the other still has what it had": {"seen": 22, "made": 23, "shares": {"t-0": "a"}},
    "another partition": {"seen": 10, "made": 22, "shares": {"t-2": "a"}},
    "another group": {"seen": 10, "made": 22, "shares": {"t-0": "a"}, "group": "h"},
    "what is for the same member by both views": {"seen": 10, "made": 22, "shares": {"t-0": "c"}, "owner": "c"},
    "what it did not claim, but gave to another": {"seen": 10, "made": 22, "shares": {"t-0": "d"}},
}


@pytest.mark.parametrize("given", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_its_neighbour_is_not(given: dict[str, object], tmp_path: Path) -> None:
    assert found(tmp_path, [*NEWER, *claim(2, **{"owner": "a", **given})]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("groups", [40, by_night(120)])
def test_what_is_found_is_what_looking_at_all_pairs_finds(tmp_path: Path, groups: int) -> None:
    rng = random.Random(7)
    rows = [row for number in range(groups) for row in random_claims(f"g{number}", rng, first_op=100 * number)]
    with opened(write(tmp_path / "history", rows)) as engine:
        create_views(engine, SPLIT_BRAIN.views)
        found = engine.rows("select * from found_split_brain")
        known = {(row["group_name"], row["key"], row["claim_number"]) for row in found}
    assert known == split(rows)
    assert groups // 6 < len(known) < sum(row["kind"] == "claim" for row in rows) / 2
