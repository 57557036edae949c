"""A finding names the node through which its operations went, where that is known, and only there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.checkers.judging.contract import forbid
from assay.checkers.judging.history_views import open_history
from assay.harness.core.history.data_sets import WORKER_NODES
from assay.reports.evidence import look_up_evidence

from helpers.judging import judge
from helpers.log_histories import effect, write

MS = 1_000_000


@pytest.mark.parametrize(
    ("known", "adder", "reader"),
    [
        ({"w0": "n1", "w1": "n3"}, "process 1 through n1", "process 2 through n3"),
        ({"w1": "n3"}, "process 1", "process 2 through n3"),
        ({}, "process 1", "process 2"),
    ],
)
def test_of_a_lost_element_the_node_that_acknowledged_it_and_the_one_that_missed_it(
    tmp_path: Path, known: dict[str, str], adder: str, reader: str
) -> None:
    rows = [
        effect(0, 0, "set-add", "s", 1_000, 1_100, value=5, process=1, worker="w0"),
        effect(1, 0, "set-read", "s", 2_000, 2_100, value=None, process=2, worker="w1"),
    ]
    folder = write(tmp_path / "history", rows)
    (folder / WORKER_NODES).write_text(json.dumps(known))
    judgement = judge(folder, forbid("set-lost"))
    (finding,) = judgement.findings
    assert f"the add of 5 by {adder} was acknowledged at " in finding.claim
    assert f"the read by {reader}, called at " in finding.claim
    lines = look_up_evidence(open_history(folder), judgement).operations
    assert f" by {adder}, " in lines[0]
    assert f" by {reader}, " in lines[1]
