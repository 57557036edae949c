"""Tests what a reader finds of a history that is still being written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.history.live_manifest import UNFINISHED, read_manifest
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome

from helpers.examples import some_of


def operation(index: int, outcome: Outcome) -> Completed:
    ret = None if outcome is Outcome.INFO else index + 1
    return Completed(index, index, "w0", Operation("add", "s", index), Completion(outcome), index, ret, None)


def effects(completed: Completed) -> list[Effect]:
    return [Effect("set-add", "s", value=completed.index)]


def read(folder: Path) -> dict[int, tuple[str, int]]:
    """Returns, by operation, its outcome and the number of its effects that can be read now."""
    found = read_manifest(folder)
    assert found is not None
    reader = HistoryReader(folder, paths=found.paths(folder))
    many: dict[int, int] = {}
    for row in reader.table("effects").to_pylist():
        many[row["op"]] = many.get(row["op"], 0) + 1
        assert row["outcome"] is not None
    ops = reader.table("ops").to_pylist()
    assert len({row["index"] for row in ops}) == len(ops)
    return {row["index"]: (row["outcome"], many.get(row["index"], 0)) for row in ops}


@settings(max_examples=some_of(100))
@given(steps=st.lists(st.sampled_from(["call", "end", "seal"]), max_size=30))
def test_all_that_has_been_called_is_there_after_each_seal(
    steps: Sequence[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("growing") / "history"
    under_way: list[int] = []
    ended: list[int] = []
    with HistoryWriter(folder) as writer:
        writer.show_unfinished(
            lambda: [(one, effects(one)) for one in (operation(index, Outcome.INFO) for index in under_way)]
        )
        for step in steps:
            if step == "call":
                under_way.append(len(under_way) + len(ended))
            elif step == "end" and under_way:
                ended.append(under_way.pop(0))
                writer.completed(operation(ended[-1], Outcome.OK), effects(operation(ended[-1], Outcome.OK)))
            elif step == "seal":
                writer.flush()
                expected = {index: ("ok", 1) for index in ended} | {index: ("info", 1) for index in under_way}
                assert read(folder) == expected
    assert HistoryReader(folder).rows("ops") == len(ended)


def test_what_was_noted_stays_until_the_seal_after_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    writer = HistoryWriter(folder)
    writer.show_unfinished(lambda: [(operation(0, Outcome.INFO), [])])
    writer.flush()
    first = read_manifest(folder)
    assert first is not None
    writer.flush()
    assert all(path.exists() for path in first.paths(folder)["ops"])
    writer.flush()
    assert not all(path.exists() for path in first.paths(folder)["ops"])
    assert sorted(path.name for path in (folder / UNFINISHED).glob("*under-way*")) == [
        "ops-under-way-000002.parquet", "ops-under-way-000003.parquet",
    ]  # fmt: skip


def test_nothing_of_it_stays_in_a_closed_history(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    with HistoryWriter(folder) as writer:
        writer.show_unfinished(lambda: [(operation(0, Outcome.INFO), [])])
        writer.flush()
        assert read_manifest(folder) is not None
        digest = writer.digest()
    assert read_manifest(folder) is None
    assert not (folder / UNFINISHED).exists()
    assert HistoryReader(folder).digest() == digest
    assert HistoryReader(folder).rows("ops") == 0


def test_a_client_whose_effects_cannot_be_had_does_not_keep_the_run_from_its_seal(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    with HistoryWriter(folder) as writer:
        writer.show_unfinished(lambda: [(operation(0, Outcome.INFO), [Effect("set-add", "s", value="no number")])])  # type: ignore[arg-type]
        writer.completed(operation(1, Outcome.OK), effects(operation(1, Outcome.OK)))
        writer.flush()
        assert read_manifest(folder) is None
    assert HistoryReader(folder).rows("ops") == 1
