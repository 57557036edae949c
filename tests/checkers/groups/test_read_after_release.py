"""Reads after a partition was given up, and the reads before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.read_after_release import READ_AFTER_RELEASE
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding

from helpers.commit_histories import poll, row
from helpers.judging import opened
from helpers.log_histories import Row, write


def found(folder: Path, rows: list[Row]) -> list[Finding]:
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, Contract())
        create_views(engine, READ_AFTER_RELEASE.views)
        return read_findings(engine, READ_AFTER_RELEASE)


@pytest.mark.parametrize("kind", ["release", "lost"])
def test_a_read_beyond_the_end_of_its_hold_is_found(kind: str, tmp_path: Path) -> None:
    """In the very operation in which it ended: the fetch had been sent before."""
    (finding,) = found(tmp_path, [*poll(1, 0, 3, (0, 1)), *poll(2, 3, 5, (2, 3)), row(2, kind, 3, (2, 3), sub=2)])
    assert (finding.anomaly, finding.operations) == ("read-after-release", (2,))
    assert finding.claim == (
        "process 1 was shown t-0 up to offset 5, by 3.000 s, under a hold that had ended at offset 3 (process 1, "
        "called at 2.000 s)."
    )


NEIGHBOURS = {
    "up to the end of its hold": [*poll(1, 0, 3, (0, 1)), row(2, "release", 3, (2, 3))],
    "in the same operation, before it": [*poll(1, 0, 3, (0, 1)), row(1, "release", 3, (0, 1), sub=2)],
    "under its next hold": [row(1, "release", 3, (0, 1)), *poll(2, 3, 5, (2, 3), assignment=2)],
    "another's hold": [row(1, "release", 3, (0, 1)), *poll(2, 3, 5, (2, 3), process=2)],
    "where a hold ended is not known": [row(1, "release", None, (0, 1)), *poll(2, 3, 5, (2, 3))],
    "set back after it was read": [*poll(1, 0, 9, (0, 1)), row(2, "release", 2, (2, 3))],
}


@pytest.mark.parametrize("rows", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_its_neighbour_is_not(rows: list[Row], tmp_path: Path) -> None:
    assert found(tmp_path, rows) == []
