"""Unique ids: what is handed out twice and what is not, by hand, and by counting in histories at random."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.verdict import Finding, Verdict
from assay.checkers.objects.ids import ID_ANOMALIES, ID_DUPLICATE, ID_VIEWS

from helpers.judging import judge, opened
from helpers.log_histories import Row, effect, write

S = 1_000_000_000
Id = int | str | None


def generated(op: int, got: Id | list[Id], outcome: str = "ok", key: str = "ids") -> list[Row]:
    """Returns an operation and the ids in its answer, from second ``op`` on."""
    ret = None if outcome == "info" else op * S + S // 2
    return [
        effect(
            op, sub, "id-generate", key, op * S, ret, process=op, outcome=outcome,
            value=one if isinstance(one, int) else None, name=one if isinstance(one, str) else None,
        )
        for sub, one in enumerate(got if isinstance(got, list) else [got])
    ]  # fmt: skip


def found(rows: list[Row]) -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder, opened(write(Path(folder) / "history", rows)) as engine:
        create_views(engine, (*ID_VIEWS, *ID_DUPLICATE.views))
        return read_findings(engine, ID_DUPLICATE)


WRONG = {
    "twice": ([7, 8, 7], "ids: process 0 got 7 at 0.500 s, and process 2 got it again at 2.500 s."),
    "three times": (
        [7, 7, 7],
        "ids: process 0 got 7 at 0.500 s, and process 1 got it again at 1.500 s, and 1 more did.",
    ),
    "as text": (["a", "b", "a"], "ids: process 0 got 'a' at 0.500 s, and process 2 got it again at 2.500 s."),
    "in one answer": ([[7, 8, 7], 9], "ids: process 0 got 7 twice in one answer at 0.500 s."),
}


@pytest.mark.parametrize(("ids", "claim"), WRONG.values(), ids=WRONG)
def test_it_is_found(ids: list[Id | list[Id]], claim: str) -> None:
    (finding,) = found([row for op, got in enumerate(ids) for row in generated(op, got)])
    assert finding.claim == claim


RIGHT: dict[str, list[Row]] = {
    "each once": [*generated(0, 7), *generated(1, 8)],
    "the other failed": [*generated(0, 7), *generated(1, 7, "fail")],
    "of the other no one knows": [*generated(0, 7), *generated(1, 7, "info")],
    "by another generator": [*generated(0, 7), *generated(1, 7, key="others")],
    "a number and its text": [*generated(0, 7), *generated(1, "7")],
    "none that is known": [*generated(0, None), *generated(1, None)],
}


@pytest.mark.parametrize("rows", RIGHT.values(), ids=RIGHT)
def test_its_neighbour_is_not(rows: list[Row]) -> None:
    assert found(rows) == []


def test_a_generator_of_which_nothing_is_known_is_unknown(tmp_path: Path) -> None:
    rows = [row for op in range(20) for row in generated(op, None)]
    judgement = judge(write(tmp_path / "none", rows), forbid(*ID_ANOMALIES))
    assert judgement.verdict is Verdict.UNKNOWN
    assert "id-duplicate is forbidden, but its check had no data" in judgement.unknown
    rows = [row for op in range(20) for row in generated(op, op)]
    assert judge(write(tmp_path / "some", rows), forbid(*ID_ANOMALIES)).verdict is Verdict.PASS


@settings(max_examples=8)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["0", "x"])),
            st.sampled_from(["ok", "ok", "ok", "info", "fail"]),
        ),
        max_size=60,
    )
)
def test_what_is_found_is_what_counting_finds(steps: list[tuple[str, Id, str]]) -> None:
    rows = [row for op, (key, got, outcome) in enumerate(steps) for row in generated(op, got, outcome, key)]
    counts = Counter((key, got) for key, got, outcome in steps if outcome == "ok" and got is not None)
    expected = {(key, repr(got)) for (key, got), many in counts.items() if many > 1}
    claims = [(one.key, one.claim.split(" got ")[1].split(" at ")[0]) for one in found(rows)]
    assert sorted(claims) == sorted(expected)
