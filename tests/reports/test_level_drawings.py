"""The drawing of a refuted isolation level: a box for each transaction of the circle, an arrow for each step, and no
transaction of the finding without a name."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.isolation.level_check import check_level
from assay.checkers.isolation.levels import LEVELS
from assay.checkers.isolation.refutation import StepCycle
from assay.checkers.isolation.transactions import make_history
from assay.checkers.transactions.level import _make_finding
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.reports.cycle_drawing import draw_cycle

from helpers.isolation_oracle import draw_history, to_rows
from helpers.txn_histories import Store, Txn
from helpers.workload_files import done, edn

SHAPES: Final = {
    "dirty write": ("read-uncommitted", ("ax1 ay1", "ax2 ay2", "rx12 ry21")),
    "circular information flow": ("read-committed", ("wx1 ry=1", "wy1 rx=1")),
    "fractured read": ("read-atomic", ("wx1 wy1", "wx2 wy2", "rx=1 ry=2")),
    "lost cause": ("causal", ("wx1", "rx=1 wy1", "ry=1 rx=0")),
    "lost update": ("snapshot-isolation", ("wx1", "rx=1 wx2", "rx=1 wx3")),
    "long fork": ("snapshot-isolation", ("wx1", "wy1", "rx=1 ry=0", "rx=0 ry=1")),
    "write skew": ("serializable", ("wx1 wy1", "rx=1 wy2", "ry=1 wx2")),
    "stale read": ("strict-serializable", ("wx1", "wx2", "rx=1")),
}
"""The level that forbids the shape, and transactions one after another. A read of 0 shows the initial value."""
CIRCLES: Final = {"long fork": 4, "lost cause": 3, "write skew": 2, "stale read": 2}
"""The number of transactions of some circles."""


def make_transactions(texts: tuple[str, ...]) -> list[Txn]:
    store = Store()
    for text in texts:
        store.add(*text.split())
    for txn in store.txns:
        txn.micros = [(f, key, None if value == 0 else value) for f, key, value in txn.micros]
    return store.txns


def find_drawing(txns: list[Txn], level: str) -> dict[str, Any] | None:
    """Returns the finding if the level is refuted by a circle. Its drawing has been compared with the circle."""
    history = make_history(to_rows(txns))
    circle = check_level(history, LEVELS[level]).refutation
    if not isinstance(circle, StepCycle):
        return None
    finding = _make_finding(history, LEVELS[level], circle)
    ops, reasons = [int(one) for one in finding["ops"].split(",")], msgspec.json.decode(finding["reasons"])
    drawing = draw_cycle([(op, f"process {op}") for op in ops], reasons)
    assert drawing is not None
    steps = [(history.ops[step.source], history.ops[step.target]) for step in circle.steps]
    assert [(arrow.source, arrow.target) for arrow in drawing.arrows] == steps
    boxes = {node.operation for node in drawing.nodes}
    assert boxes == {op for step in steps for op in step}
    for arrow in drawing.arrows:
        assert {arrow.source, arrow.target} <= {int(one) for one in re.findall(r"transaction (\d+)", arrow.reason)}
    named = {
        int(one) for reason in reasons for one in re.findall(r"(?:transaction |real time |[a-z]+ |\()(\d+)", reason)
    }
    assert {*ops} <= boxes | named
    assert finding["more"] == 0
    in_brackets = {int(one) for reason in reasons for one in re.findall(r"(?:\(|: |-> [a-z ]+)(\d+)(?= ->|\))", reason)}
    assert in_brackets <= {*ops}
    return {**finding, "boxes": boxes}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_drawing_of_a_shape_names_all_transactions_and_steps(shape: str) -> None:
    level, texts = SHAPES[shape]
    finding = find_drawing(make_transactions(texts), level)
    assert finding is not None
    assert len(finding["boxes"]) == CIRCLES.get(shape, len(finding["boxes"]))
    assert shape == "lost cause" or shape in finding["claim"]


def test_each_circle_at_each_level_is_drawn() -> None:
    rng = random.Random(4)
    drawn = 0
    for number in range(60):
        txns = draw_history(rng, 5, lists=number % 2 == 1)
        drawn += sum(find_drawing(txns, level) is not None for level in LEVELS)
    assert drawn > 60


def test_the_page_of_a_long_fork_shows_its_four_transactions_and_four_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        *done(0, "txn", "[[:append :x 1]]"),
        *done(1, "txn", "[[:append :y 1]]"),
        *done(2, "txn", "[[:r :x nil] [:r :y nil]]", "[[:r :x [1]] [:r :y []]]"),
        *done(3, "txn", "[[:r :x nil] [:r :y nil]]", "[[:r :x []] [:r :y [1]]]"),
    ]
    path = tmp_path / "history.edn"
    path.write_text(edn(events))
    assert main(["report", str(path), "--workload=list-append", "--level=snapshot-isolation"]) == ExitCode.PASS
    page = Path(capsys.readouterr().out.strip()).read_text(encoding="utf-8")
    assert "a long fork" in page
    figure = page.partition('<figure class="cycle">')[2].partition("</figure>")[0]
    boxes, arrows = {"0", "2", "4", "6"}, {("0", "4"), ("4", "2"), ("2", "6"), ("6", "0")}
    assert {*re.findall(r"<li><b>(\d) → (\d)</b>: transaction \d ", page)} == arrows
    assert boxes <= {*re.findall(r">\s*(?:op )?(\d+)\s*<", figure)}
    for op in boxes:
        assert f"op {op}" in page or f">{op}<" in page
