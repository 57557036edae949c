"""Values that no column takes, among rows that are right: each is reported, and no other row is lost."""

from __future__ import annotations

import asyncio
import enum
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.sim.loop import SimLoop
from assay.harness.cli.main import main
from assay.harness.core.client import Endpoint
from assay.harness.core.effect_recording import EffectRecorder
from assay.harness.core.history import HistoryError, HistoryReader, HistoryWriter
from assay.harness.core.history.data_sets import DATA_SETS, EFFECTS, UNRECORDED, LostRowsError
from assay.harness.core.interpreter import GeneratorError
from assay.harness.core.interpreter_status import InterpreterStatus
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome

from helpers.examples import some_of
from helpers.interpret import interpret
from helpers.nightly import a_share_by_day

OF_EFFECT = [column for column in EFFECTS if column.name in Effect.__struct_fields__]
WRONG_VALUES = {
    "int64": ["", b"", False, True, 0.0, 2.0, [], Decimal(1), float("nan"), 1 << 63],
    "string": [b"", b"a", False, 0, 0.0, [], "\ud800"],
    "bool": [0, 1, "", 0.0, "yes", []],
}


def completed(index: int, f: str = "send", key: Any = "k") -> Completed:
    return Completed(index, 0, "w0", Operation(f, key), Completion(Outcome.OK), 10 * index, 10 * index + 5)


def record(folder: Path, effects: Sequence[Sequence[Effect]], batch_rows: int = 4096) -> InterpreterStatus:
    """Records one operation for each sequence of effects."""
    status = InterpreterStatus()
    with HistoryWriter(folder, batch_rows=batch_rows) as writer:
        recorder = EffectRecorder(writer, status)
        for index, some in enumerate(effects):
            recorder.record(completed(index), lambda _, some=some: some)  # type: ignore[misc]
    return status


def read_effects(folder: Path) -> list[dict[str, Any]]:
    return HistoryReader(folder).table("effects").to_pylist()


def good(index: int) -> Effect:
    return Effect("append", "k", position=index, value=0, owner="", tombstone=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *a_share_by_day(3, ((column.name, value) for column in OF_EFFECT for value in WRONG_VALUES[column.type])),
        *[("kind", None), ("key", None), ("outcome", ""), ("outcome", "maybe")],
    ],
)
def test_a_wrong_value_in_a_later_effect_costs_its_operation_alone(tmp_path: Path, name: str, value: Any) -> None:
    wrong = Effect(**{"kind": "append", "key": "k", "position": 1, name: value})
    status = record(tmp_path, [[good(0)], [good(1), wrong], [good(2)]])
    assert status.exceptions_total == 1
    (reported,) = status.exceptions
    assert reported.index == 1
    assert reported.summary.partition(": ")[2].startswith(f"{name} of an effect of kind ")
    assert [(row["op"], row["kind"]) for row in read_effects(tmp_path)] == [
        (0, "append"), (1, UNRECORDED), (2, "append")]  # fmt: skip


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("position", 0, 0),
        ("position", -(2**63), -(2**63)),
        ("value", 2**63 - 1, 2**63 - 1),
        ("value", None, None),
        ("value", Number.ONE, 1),
        ("value", np.int64(7), 7),
        ("value", np.uint8(7), 7),
        ("tombstone", False, False),
        ("tombstone", np.True_, True),
        ("empty", True, True),
        ("owner", "", ""),
        ("key", "", ""),
        ("key", Colour.RED, "red"),
        ("key", "ключ\0", "ключ\0"),
        ("outcome", "info", "info"),
        ("outcome", Outcome.FAIL, "fail"),
    ],
)
def test_a_value_that_its_column_takes_is_stored(tmp_path: Path, name: str, value: Any, stored: Any) -> None:
    odd = Effect(**{"kind": "append", "key": "k", name: value})
    assert record(tmp_path, [[good(0)], [odd]]).exceptions_total == 0
    assert read_effects(tmp_path)[1][name] == stored


STRANGE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([-(2**63), 2**63 - 1, 2**63]), st.floats(),
    st.text(st.characters(exclude_categories=[])), st.binary(), st.lists(st.none()),
    st.dictionaries(st.text(), st.none()),
    st.decimals(), st.complex_numbers(), st.datetimes(), st.sampled_from(Outcome), st.sampled_from(Number),
    st.builds(object), st.builds(np.int64, st.integers(-9, 9)), st.builds(np.bool_, st.booleans()),
    st.builds(np.array, st.lists(st.integers(0, 9))), st.functions(),
)  # fmt: skip
STRANGE_EFFECTS = st.builds(
    lambda columns: Effect(**{"kind": "append", "key": "k", **columns}),
    st.dictionaries(st.sampled_from(Effect.__struct_fields__), STRANGE, max_size=3),
)


@settings(max_examples=some_of(60), deadline=None)
@given(st.lists(st.lists(STRANGE_EFFECTS, max_size=2), max_size=4), st.integers(1, 6))
def test_strange_effects_are_stored_or_reported_and_the_others_are_stored(
    strange: list[list[Effect]], batch_rows: int
) -> None:
    operations = [[good(-1)], *([*some, good(index)] for index, some in enumerate(strange)), [good(-2)]]
    with TemporaryDirectory() as name:
        status = record(Path(name), operations, batch_rows)
        rows = read_effects(Path(name))
        assert HistoryReader(Path(name)).rows("ops") == len(operations)
    reported = {one.index for one in status.exceptions}
    assert not reported & {0, len(operations) - 1}
    for index, effects in enumerate(operations):
        found = [row for row in rows if row["op"] == index]
        if index in reported:
            assert [row["kind"] for row in found] == [UNRECORDED]
            continue
        assert len(found) == len(effects)
        for effect, row in zip(effects, found, strict=True):
            for column in OF_EFFECT:
                value = getattr(effect, column.name)
                if column.name not in ("outcome", "error") or value is not None:
                    assert row[column.name] == (None if column.name == "error" and value == "" else value)


STRANGE_COMPLETED = st.builds(
    Completed, index=STRANGE, process=STRANGE, worker=STRANGE, operation=st.builds(Operation, f=STRANGE, key=STRANGE),
    completion=st.builds(Completion, outcome=STRANGE, error=STRANGE), call=STRANGE, ret=STRANGE, scheduled=STRANGE,
)  # fmt: skip


@settings(max_examples=some_of(60), deadline=None)
@given(st.lists(st.tuples(STRANGE_COMPLETED, st.lists(STRANGE_EFFECTS, max_size=2)), max_size=3), st.integers(1, 6))
def test_a_writer_keeps_all_other_rows(strange: list[tuple[Completed, list[Effect]]], batch_rows: int) -> None:
    """The rows are not checked before."""
    with TemporaryDirectory() as name:
        writer, recorded, lost = HistoryWriter(name, batch_rows=batch_rows), [], False
        rows = [(completed(-10), [good(1)]), *strange, (completed(-20), [good(2)])]
        try:
            for one, effects in rows:
                recorded.append(one.index)
                writer.completed(one, effects)
            writer.close()
        except LostRowsError:
            lost = True
            with pytest.raises(HistoryError, match="failed earlier"):
                writer.flush()
            writer.abandon()
        reader = HistoryReader(Path(name))
        ops = reader.table("ops").to_pylist()
        effects_of = {row["op"]: row["kind"] for row in reader.table("effects").to_pylist()}
        assert (reader.closing_note is None) is lost
        for index in {-10, -20}.intersection(one for one in recorded if type(one) is int):
            assert index in [row["index"] for row in ops]
            assert effects_of[index] == "append"
        assert lost is (effects_of.get(-1) == UNRECORDED) or -1 in recorded


@pytest.mark.parametrize("name", [name for name in DATA_SETS if name not in ("ops", "effects")])
def test_a_wrong_value_of_another_data_set_is_refused_at_its_row(tmp_path: Path, name: str) -> None:
    plain: dict[str, Any] = {"int64": 1, "string": "x", "bool": True}
    row = {column.name: plain[column.type] for column in DATA_SETS[name] if not column.nullable}
    with HistoryWriter(tmp_path) as writer:
        add: Callable[..., None] = getattr(writer, name.removesuffix("s"))
        add(**row)
        for column in DATA_SETS[name]:
            if column.name in ("targets", "detail", "isr", "elr", "replicas", "gone", "osr"):
                continue
            for value in WRONG_VALUES[column.type]:
                with pytest.raises(HistoryError, match=f"^{column.name} of a row of {name} is "):
                    add(**{**row, column.name: value})
        add(**row)
    assert HistoryReader(tmp_path).rows(name) == 2


ENDPOINTS = [Endpoint("n1", "10.0.0.1:9092", ())]


class Idle:
    """A client that answers at once."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None: ...

    async def invoke(self, operation: Operation) -> Completion:
        await asyncio.sleep(0.001)
        return Completion(Outcome.OK)

    async def close(self) -> None: ...

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return [Effect("read", str(completed.operation.key), value=1)]


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (Operation("read", 1), r"^key of the operation Operation\(.*\) is 1: it takes text; .* str\(key\)"),  # type: ignore[arg-type]
        (Operation("read", 0), "^key of .* is 0: it takes text"),  # type: ignore[arg-type]
        (Operation("read", b""), "^key of .* is b'': it takes text"),  # type: ignore[arg-type]
        (Operation("read", "\ud800"), "^key of .*: it takes text that is UTF-8"),
        (Operation(None, "k"), "^f of .* is None: it takes text"),  # type: ignore[arg-type]
        (Operation("read", "k", phase="mane"), "^phase of .* is 'mane', none of main, sentinel, drain"),  # type: ignore[arg-type]
    ],
)
def test_an_operation_that_cannot_be_stored_is_not_invoked(tmp_path: Path, operation: Operation, said: str) -> None:
    def run() -> None:
        with asyncio.Runner(loop_factory=SimLoop) as runner, HistoryWriter(tmp_path) as writer:
            source = [Operation("read", "a"), Operation("read", Colour.RED), operation]
            runner.run(interpret(source, endpoints=ENDPOINTS, client=Idle, recorder=writer, concurrency=1))

    with pytest.raises(GeneratorError, match=said):
        run()
    keys = HistoryReader(tmp_path).table("ops").column("key").to_pylist()
    assert keys == ["a", "red"]


@pytest.mark.parametrize(("column", "wrong"), [("value", 2.0), ("value", True), ("owner", b"a"), ("position", 0.0)])
def test_a_value_that_arrow_would_store_as_another_one_is_refused_by_the_writer(
    tmp_path: Path, column: str, wrong: object
) -> None:
    writer = HistoryWriter(tmp_path)
    writer.completed(completed(0, "write"), [Effect("register-write", "k", **{column: wrong})])  # type: ignore[arg-type]
    with pytest.raises(LostRowsError, match=rf"column {column} .*{re.escape(repr(wrong))}"):
        writer.close()
    writer.abandon()


@pytest.mark.parametrize(("lost", "status"), [(False, 1), (True, 2)])
def test_a_history_that_lost_rows_is_unknown_even_with_an_anomaly(tmp_path: Path, lost: bool, status: int) -> None:
    writer = HistoryWriter(tmp_path)
    writer.completed(completed(0, "write"), [Effect("register-write", "k", value=1)])
    writer.completed(completed(1, "read"), [Effect("register-read", "k", value=1)])
    writer.completed(completed(2, "read"), [Effect("register-read", "k", value=2)])
    if lost:
        writer.completed(completed(3, "write"), [Effect("register-write", "k", value=b"2")])  # type: ignore[arg-type]
        with pytest.raises(LostRowsError, match=r"value .*1 row cannot be stored \(effects of operation 3\)"):
            writer.close()
        writer.abandon()
    writer.close()
    assert HistoryReader(tmp_path).table("ops").column("index").to_pylist() == [0, 1, 2, *([3, -1] if lost else [])]
    assert main(["check", str(tmp_path)]) == status
