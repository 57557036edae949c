"""Histories on disk: the format, round trips, runs that were killed, files from elsewhere, the digest."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.sim.loop import SimLoop
from assay.harness.core.history import (
    EFFECTS,
    FORMAT,
    OPS,
    SCHEMAS,
    HistoryError,
    HistoryReader,
    HistoryWriter,
    translation,
)
from assay.harness.core.history.data_sets import FORMAT_KEY, REPORTED_DATA_SETS
from assay.harness.core.history.digest import hash_footer
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase

from helpers.examples import some_of

pytestmark = pytest.mark.slow

BIG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | BIG | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner)
)
OPERATIONS = st.builds(Operation, f=TEXT, key=st.none() | TEXT, argument=JSON, phase=st.sampled_from(Phase))
ROWS = st.builds(
    Completed,
    index=BIG,
    process=st.integers(0, 2**31 - 1),
    worker=TEXT,
    operation=OPERATIONS,
    completion=st.builds(
        Completion, outcome=st.sampled_from(Outcome), result=JSON, error=st.none() | TEXT.filter(bool)
    ),
    call=BIG,
    ret=st.none() | BIG,
    scheduled=st.none() | BIG,
)
MAYBE = st.none() | BIG
EFFECT_ROWS = st.builds(
    Effect,
    kind=TEXT,
    key=TEXT,
    position=MAYBE,
    value=MAYBE,
    expected=MAYBE,
    leader_epoch=MAYBE,
    generation=MAYBE,
    token=MAYBE,
    request=MAYBE,
    owner=st.none() | TEXT,
    group=st.none() | TEXT,
    assignment=MAYBE,
    node=st.none() | TEXT,
    message_key=st.none() | TEXT,
    tombstone=st.none() | st.booleans(),
    timestamp=MAYBE,
    size=MAYBE,
    name=st.none() | TEXT,
    replicas=st.none() | TEXT,
    incarnation=MAYBE,
    source=st.none() | TEXT,
    client=st.none() | TEXT,
    retention_ms=MAYBE,
    max_wait_ms=MAYBE,
    waited_ms=MAYBE,
    empty=st.none() | st.booleans(),
    outcome=st.none() | st.sampled_from(Outcome),
    error=st.none() | TEXT.filter(bool),
)
RUNS = st.lists(st.tuples(ROWS, st.lists(EFFECT_ROWS, max_size=3)), max_size=12)
Run = list[tuple[Completed, list[Effect]]]


def row(index: int, argument: Any = None, outcome: Outcome = Outcome.OK) -> Completed:
    ret = None if outcome is Outcome.INFO else index * 10 + 5
    return Completed(index, 0, "w0", Operation("send", "k", argument), Completion(outcome), index * 10, ret)


def write(folder: Path, run: Run, **options: Any) -> str:
    with HistoryWriter(folder, **options) as writer:
        for completed, effects in run:
            writer.completed(completed, effects)
        return writer.digest()


@settings(max_examples=some_of(20), deadline=None)
@given(RUNS, st.integers(1, 5), st.integers(1, 8))
def test_what_is_written_is_read_whatever_the_parts(run: Run, batch_rows: int, part_rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        digest = write(Path(folder, "h"), run, batch_rows=batch_rows, part_rows=part_rows)
        reader = HistoryReader(Path(folder, "h"))
        assert list(reader.completed()) == [completed for completed, _ in run]
        wanted = [
            {
                **{name: getattr(effect, name) for name in Effect.__struct_fields__},
                "op": completed.index,
                "sub": sub,
                "process": completed.process,
                "call": completed.call,
                "ret": completed.ret,
                "outcome": effect.outcome or completed.completion.outcome,
                "error": effect.error or completed.completion.error,
                "phase": completed.operation.phase,
            }
            for completed, effects in run
            for sub, effect in enumerate(effects)
        ]
        assert reader.table("effects").to_pylist() == wanted
        assert reader.closing_note is not None
        assert reader.closing_note.digest == reader.digest() == digest
        assert reader.closing_note.rows == {name: reader.rows(name) for name in SCHEMAS}


@settings(max_examples=some_of(12), deadline=None)
@given(RUNS, st.data())
def test_the_digest_knows_rows_and_not_parts(run: Run, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = write(Path(folder, "a"), run)
        assert write(Path(folder, "b"), run, batch_rows=2, part_rows=3) == whole
        if run:
            at = data.draw(st.integers(0, len(run) - 1))
            completed, effects = run[at]
            changed = data.draw(ROWS.filter(lambda other: other != completed))
            assert write(Path(folder, "c"), [*run[:at], (changed, effects), *run[at + 1 :]]) != whole
            assert write(Path(folder, "d"), run[:at] + run[at + 1 :]) != whole


def test_the_digest_tells_null_from_zero_and_empty_and_where_texts_begin(tmp_path: Path) -> None:
    def digest(name: str, **fields: Any) -> str:
        return write(tmp_path / name, [(row(1), [Effect("append", **fields)])])

    different = [
        digest("a", key="k"),
        digest("b", key="k", value=0),
        digest("c", key="k", position=0),
        digest("d", key="k", owner=""),
        digest("e", key="k", group=""),
    ]
    assert len(set(different)) == len(different)
    first = write(tmp_path / "f", [(row(1), [Effect("append", "ab"), Effect("append", "c")])])
    second = write(tmp_path / "g", [(row(1), [Effect("append", "a"), Effect("append", "bc")])])
    assert first != second


@pytest.mark.long
def test_the_digest_does_not_depend_on_the_hash_seed() -> None:
    script = (
        "import tempfile\n"
        "from assay import *\n"
        "from assay.harness.core.history import HistoryWriter\n"
        "with tempfile.TemporaryDirectory() as folder, HistoryWriter(folder) as writer:\n"
        "    operation, ok = Operation('send', 'k', {'b': 1, 'a': ['x', None]}), Completion(Outcome.OK)\n"
        "    writer.completed(Completed(1, 0, 'w0', operation, ok, 1, 2), [Effect('append', 'k')])\n"
        "    detail = {name: 1 for name in sorted({'z', 'y', 'x'})}\n"
        "    known = {'detail': detail, 'took_effect': True}\n"
        "    writer.fault(id=1, fault='kill', targets=['n1'], phase='healed', time=3, **known)\n"
        "    print(writer.digest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_the_schemas_are_those_of_the_format() -> None:
    def described(schema: pa.Schema) -> list[str]:
        return [f"{field.name} {field.type}{'?' if field.nullable else ''}" for field in schema]

    assert described(OPS)[:12] == [
        "index int64", "process int32", "worker string", "f string", "key string?", "argument string",
        "result string?", "call int64", "ret int64?", "outcome string", "error string?", "phase string",
    ]  # fmt: skip
    assert described(EFFECTS) == [
        "op int64", "sub int32", "request int64?", "process int32", "key string", "kind string", "position int64?",
        "value int64?", "expected int64?", "leader_epoch int64?", "generation int64?", "token int64?",
        "owner string?", "group string?", "assignment int64?", "node string?", "version int64?", "list_index int64?",
        "message_key string?", "tombstone bool?", "timestamp int64?", "size int64?", "name string?",
        "replicas string?", "incarnation int64?", "source string?", "client string?", "retention_ms int64?",
        "max_wait_ms int64?", "waited_ms int64?", "empty bool?", "call int64", "ret int64?", "outcome string",
        "error string?", "phase string",
    ]  # fmt: skip
    assert described(SCHEMAS["events"]) == [
        "time int64", "node string", "incarnation int64", "seq int64", "event string", "key string?", "epoch int64?",
        "controller_epoch int64?", "zxid int64?", "position int64?", "value int64?", "owner string?", "detail string",
        "high_watermark int64?", "log_start int64?", "log_end int64?",
            "version int64?", "isr string?", "elr string?", "replicas string?", "gone string?", "min_insync int64?",
            "unclean bool?", "replica int64?", "from_state string?", "to_state string?", "osr string?",
    ]  # fmt: skip
    assert described(SCHEMAS["faults"]) == [
        "id int64", "fault string", "targets string", "phase string", "time int64", "detail string",
        "took_effect bool?", "stage string?", "not_before int64?", "on_clients bool?", "ends_process bool?",
        "pauses_process bool?", "gradual bool?", "cuts_links bool?", "loses_unsynced bool?", "damages_files bool?",
        "wrong_clock bool?", "moves_replicas bool?",
    ]  # fmt: skip


def test_every_data_set_begins_with_an_empty_part_that_has_the_schema(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "h")
    for name, schema in SCHEMAS.items():
        (part,) = (tmp_path / "h" / name).iterdir()
        assert pq.read_schema(part).equals(schema)
        assert pq.read_metadata(part).num_rows == 0
    writer.close()


def test_faults_events_and_replicas_come_back(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.fault(id=1, fault="partition", targets=["n1", "n2"], phase="injected", time=5, detail={"cut": 2})
        writer.fault(id=1, fault="partition", targets=["n1"], phase="healed", time=9, took_effect=False)
        writer.event(time=1, node="n1", incarnation=2, seq=3, event="leader", key="k", epoch=4, detail={"isr": ["n1"]},
                     high_watermark=5, log_start=1, log_end=7)  # fmt: skip
        writer.replica(node="n1", key="k", position=0, value=7, crc=2**32 - 1, below_hw=True, in_isr=False)
    reader = HistoryReader(tmp_path)
    assert reader.table("faults").column("took_effect").to_pylist() == [None, False]
    assert reader.table("faults").column("targets").to_pylist() == ['["n1","n2"]', '["n1"]']
    (event,) = reader.table("events").to_pylist()
    assert (event["seq"], event["epoch"], event["zxid"], event["detail"]) == (3, 4, None, '{"isr":["n1"]}')
    assert (event["high_watermark"], event["log_start"], event["log_end"]) == (5, 1, 7)
    (replica,) = reader.dataset("replicas").to_table().to_pylist()
    assert (replica["crc"], replica["epoch"], replica["below_hw"]) == (2**32 - 1, None, True)


def test_a_row_with_a_column_that_there_is_not_or_without_one_that_must_be_there_is_rejected(tmp_path: Path) -> None:
    look = {"look": 1, "time": 2, "ended": 3, "what": "shard"}
    with HistoryWriter(tmp_path) as writer:
        writer.look(**look, node="n1")
        with pytest.raises(HistoryError, match=r"looks has no column nodes; it has look, .* unsettled"):
            writer.look(**look, nodes="n1")
        with pytest.raises(HistoryError, match="replicas must have a value for in_isr, position in every row"):
            writer.replica(node="n1", key="k", below_hw=True)
    (row,) = HistoryReader(tmp_path).table("looks").to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {**look, "node": "n1"}


def test_duckdb_reads_the_parts(tmp_path: Path) -> None:
    write(tmp_path / "h", [(row(n), [Effect("append", "k", value=n)]) for n in range(10)], batch_rows=3, part_rows=3)
    paths = [str(path) for path in HistoryReader(tmp_path / "h").paths("effects")]
    with duckdb.connect() as connection:
        found = connection.execute("select count(*), sum(value) from read_parquet(?)", [paths]).fetchone()
        assert found == (10, 45)
        everything = str(tmp_path / "h" / "ops" / "*.parquet")
        assert connection.execute("select count(*) from read_parquet(?)", [everything]).fetchone() == (10,)


def test_a_killed_run_is_read_up_to_its_last_flush(tmp_path: Path) -> None:
    """A real process, killed with rows buffered, half a part written, and all between."""
    script = (
        "import sys, time\n"
        "from assay import *\n"
        "from assay.harness.core.history import HistoryWriter\n"
        f"writer = HistoryWriter({str(tmp_path / 'h')!r}, batch_rows=4)\n"
        "for n in range(31):\n"
        "    operation, ok = Operation('send', 'k', n), Completion(Outcome.OK)\n"
        "    writer.completed(Completed(n, 0, 'w0', operation, ok, n * 2, n * 2 + 1), [Effect('append', 'k')])\n"
        "    if n == 19:\n"
        "        writer.flush()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    reader = HistoryReader(tmp_path / "h")
    assert [completed.index for completed in reader.completed()] == list(range(20))
    assert reader.rows("effects") == 20
    assert reader.closing_note is None


def test_an_abandoned_run_is_readable_and_not_marked_as_complete(tmp_path: Path) -> None:
    def fail(writer: HistoryWriter) -> None:
        with writer:
            writer.completed(row(1))
            raise ZeroDivisionError

    writer = HistoryWriter(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail(writer)
    reader = HistoryReader(tmp_path)
    assert (reader.rows("ops"), reader.closing_note) == (1, None)
    with pytest.raises(HistoryError, match="is closed"):
        writer.completed(row(2))


SEAL_IN_A_NEW_PROCESS = """
import asyncio, sys
from pathlib import Path
from assay.harness.core.history import HistoryWriter

async def main():
    writer = HistoryWriter(Path(sys.argv[1]), loop=asyncio.get_running_loop())
    before = set(sys.modules)
    writer.look(look=1, time=1, ended=2, what="partition")
    writer.close()
    print(sorted({name.partition(".")[0] for name in set(sys.modules) - before}))

asyncio.run(main())
"""


def test_the_first_seal_of_a_real_run_imports_nothing(tmp_path: Path) -> None:
    """An import would stop the event loop, and so the operations under test."""
    command = [sys.executable, "-c", SEAL_IN_A_NEW_PROCESS, str(tmp_path / "history")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_parts_are_sealed_by_the_loops_time_even_when_nothing_more_happens(tmp_path: Path) -> None:
    async def go() -> None:
        writer = HistoryWriter(tmp_path, loop=asyncio.get_running_loop(), seal_seconds=5.0)
        await asyncio.sleep(100)
        writer.completed(row(1))
        await asyncio.sleep(4.9)
        assert HistoryReader(tmp_path).rows("ops") == 0
        await asyncio.sleep(0.2)
        assert HistoryReader(tmp_path).rows("ops") == 1
        writer.completed(row(2))
        await asyncio.sleep(5.1)
        assert HistoryReader(tmp_path).rows("ops") == 2
        writer.close()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(go())


def test_an_error_in_the_background_is_raised_by_the_next_call(tmp_path: Path) -> None:
    async def go() -> None:
        writer = HistoryWriter(tmp_path, loop=asyncio.get_running_loop(), seal_seconds=1.0)
        writer.completed(row(1))
        (tmp_path / "ops" / "part-000001.parquet").mkdir()  # in the way of the next part
        (tmp_path / "ops" / "part-000001.parquet" / "x").touch()
        await asyncio.sleep(2)
        with pytest.raises(HistoryError, match="failed earlier"):
            writer.completed(row(2))
        with pytest.raises(HistoryError, match="failed earlier"):
            writer.close()
        writer.abandon()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(go())


@pytest.mark.parametrize(
    "lost",
    [Effect("append", "k", name="\udc80"), Effect("append", "k", value=1 << 64), Effect("append", "k", node=7)],  # type: ignore[arg-type]
)
def test_a_history_that_lost_rows_in_the_background_is_never_complete(tmp_path: Path, lost: Effect) -> None:
    """Whatever the reason was why they could not be written."""

    async def go() -> None:
        writer = HistoryWriter(tmp_path, loop=asyncio.get_running_loop(), seal_seconds=1.0)
        writer.completed(row(1), [lost])
        await asyncio.sleep(2)
        with pytest.raises(HistoryError, match="failed earlier: column"):
            writer.close()
        writer.abandon()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(go())
    assert HistoryReader(tmp_path).closing_note is None


def test_memory_is_bounded_by_the_batch(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path, batch_rows=100, part_rows=1000) as writer:
        for n in range(5050):
            writer.completed(row(n), [Effect("append", "k")] * 3)
            assert len(writer._ops.pending) < 100
            assert len(writer._effects.pending) < 100 + 3
    parts = HistoryReader(tmp_path).paths("ops")
    assert max(pq.read_metadata(part).num_rows for part in parts) <= 1000
    assert sum(pq.read_metadata(part).num_rows for part in parts) == 5050


def count_group_rows(folder: Path) -> list[int]:
    """Returns the number of effects in each row group."""
    files = [pq.ParquetFile(path) for path in sorted((folder / "effects").glob("*.parquet"))]
    return [file.metadata.row_group(group).num_rows for file in files for group in range(file.num_row_groups)]


def test_row_groups_are_large_if_no_event_loop_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers keep metadata of each row group in memory."""
    monkeypatch.setattr("assay.harness.core.history.writer.GROUP_ROWS", 50)
    rows = [(row(n), [Effect("append", "k", value=n)]) for n in range(170)]
    write(tmp_path / "h", rows, batch_rows=10, part_rows=120)
    assert count_group_rows(tmp_path / "h") == [50, 50, 20, 50]


def test_row_groups_are_small_if_an_event_loop_waits(tmp_path: Path) -> None:
    """Writing a large one would stop the loop, and with it the clients."""

    async def run() -> None:
        with HistoryWriter(tmp_path / "h", batch_rows=10, loop=asyncio.get_running_loop()) as writer:
            for n in range(25):
                writer.completed(row(n), [Effect("append", "k", value=n)])

    asyncio.run(run())
    assert count_group_rows(tmp_path / "h") == [10, 10, 5]


def test_what_is_not_plain_data_is_refused_where_it_came_from(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path)
    with pytest.raises(HistoryError, match="argument of send cannot be written as JSON"):
        writer.completed(row(1, argument=object()))
    writer.completed(row(1), [Effect("append", "k", value=2**63)])
    with pytest.raises(HistoryError, match="column value of the history takes int64"):
        writer.flush()
    with pytest.raises(HistoryError, match="failed earlier"):
        writer.close()
    writer.abandon()
    assert HistoryReader(tmp_path).closing_note is None


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(HistoryError, match="never written over"):
        HistoryWriter(tmp_path)


def broken(tmp_path: Path) -> Path:
    write(tmp_path / "h", [(row(n), [Effect("append", "k")]) for n in range(3)])
    return tmp_path / "h"


def test_errors_name_the_file_and_the_reason(tmp_path: Path) -> None:
    folder = broken(tmp_path)
    part = folder / "ops" / "part-000001.parquet"
    good = part.read_bytes()
    table = pq.read_table(part)

    with pytest.raises(HistoryError, match="nowhere is not a folder"):
        HistoryReader(tmp_path / "nowhere")
    part.write_bytes(good[: len(good) // 2])
    with pytest.raises(HistoryError, match=r"ops/part-000001.parquet is not a Parquet file"):
        HistoryReader(folder)
    pq.write_table(table.drop_columns(["call"]), part)
    with pytest.raises(HistoryError, match=r"ops/part-000001.parquet has no column call \(int64\)"):
        HistoryReader(folder)
    pq.write_table(table.set_column(7, "call", pa.array(["1", "2", "3"])), part)
    with pytest.raises(HistoryError, match=r"part-000001.parquet: column call is string where ops has int64"):
        HistoryReader(folder)
    pq.write_table(table.set_column(7, "call", pa.array([1, None, 3], pa.int64())), part)
    with pytest.raises(HistoryError, match=r"part-000001.parquet: column call must have a value in every row"):
        HistoryReader(folder).table("ops")
    wide = table.set_column(table.column_names.index("process"), "process", pa.array([1, 2, 2**40 + 3], pa.int64()))
    pq.write_table(wide, part)
    with pytest.raises(HistoryError, match=r"column process does not fit int32: .* 1099511627779 not in range"):
        HistoryReader(folder).table("ops")
    part.write_bytes(good)
    (folder / "closed.json").write_text("{")
    with pytest.raises(HistoryError, match=r"closed.json is damaged"):
        HistoryReader(folder)


def test_a_missing_data_set_is_an_error_unless_it_is_optional(tmp_path: Path) -> None:
    folder = broken(tmp_path)
    for path in (folder / "replicas").iterdir():
        path.unlink()
    with pytest.raises(HistoryError, match="replicas has no part"):
        HistoryReader(folder)
    (folder / "replicas").rmdir()
    with pytest.raises(HistoryError, match="replicas is missing"):
        HistoryReader(folder)
    reader = HistoryReader(folder, optional=["replicas", "events"])
    assert reader.table("replicas").schema.equals(SCHEMAS["replicas"])
    assert reader.dataset("replicas").count_rows() == 0


def test_a_history_from_elsewhere_may_store_its_columns_otherwise(tmp_path: Path) -> None:
    """All nullable, other widths, dictionaries, another order, no added columns, more columns of its own."""
    folder = broken(tmp_path)
    digest = HistoryReader(folder).digest()
    part = folder / "ops" / "part-000001.parquet"
    table = pq.read_table(part)
    columns: dict[str, Any] = {name: table.column(name) for name in reversed(table.column_names) if name != "scheduled"}
    columns["process"] = columns["process"].cast(pa.int64())
    columns["f"] = columns["f"].cast(pa.large_string())
    columns["worker"] = columns["worker"].combine_chunks().dictionary_encode()
    columns["error"] = pa.nulls(3)
    columns["more"] = pa.array([1.0, 2.0, 3.0])
    pq.write_table(pa.table(columns), part)
    reader = HistoryReader(folder)
    assert reader.table("ops").schema.equals(OPS)
    assert reader.digest() == digest
    assert reader.dataset("ops").count_rows() == 3
    assert reader.dataset("ops").to_table().column("scheduled").null_count == 3


def test_closed_json_is_what_the_reader_says(tmp_path: Path) -> None:
    digest = write(tmp_path, [(row(1), [])])
    closed = msgspec.json.decode((tmp_path / "closed.json").read_bytes())
    reader = HistoryReader(tmp_path)
    assert closed == {
        "digest": digest,
        "reported": reader.digest(names=REPORTED_DATA_SETS),
        "rows": {"ops": 1, "effects": 0, "faults": 0, "events": 0, "replicas": 0, "looks": 0},
        "footers": {f"{name}/{path.name}": hash_footer(path) for name in SCHEMAS for path in reader.paths(name)},
    }


def test_each_file_says_its_format_and_a_newer_one_is_rejected_by_name(tmp_path: Path) -> None:
    write(tmp_path, [(row(1), [Effect("append", "k", position=7, message_key="m")])])
    reader = HistoryReader(tmp_path)
    assert {reader.format(name) for name in SCHEMAS} == {FORMAT}
    assert not any(reader.translation(name) for name in SCHEMAS)
    part = reader.paths("effects")[-1]
    table = pq.read_table(part)
    pq.write_table(table.replace_schema_metadata({FORMAT_KEY: b"99"}), part)
    with pytest.raises(HistoryError, match=rf"{part} has format 99, and this version reads formats 4 to {FORMAT}"):
        HistoryReader(tmp_path)
    pq.write_table(table.drop_columns("version"), part)
    with pytest.raises(HistoryError, match=r"has no column version \(int64\)"):
        HistoryReader(tmp_path)


@pytest.mark.parametrize("said", [b"1", b"2", b"3"])
def test_a_format_that_is_no_longer_read_names_the_last_version_that_reads_it(tmp_path: Path, said: bytes) -> None:
    write(tmp_path, [(row(1), [Effect("append", "k", position=7, message_key="m")])])
    part = HistoryReader(tmp_path).paths("effects")[-1]
    pq.write_table(pq.read_table(part).replace_schema_metadata({FORMAT_KEY: said}), part)
    with pytest.raises(HistoryError, match=rf"format {said.decode()}; assay 0.1.0 is the last version that reads"):
        HistoryReader(tmp_path)


def test_a_file_of_format_1_that_does_not_say_so_is_refused_too(tmp_path: Path) -> None:
    write(tmp_path, [(row(1), [Effect("append", "k", position=7, message_key="m")])])
    part = HistoryReader(tmp_path).paths("effects")[-1]
    rows = pq.read_table(part)
    former = rows.rename_columns(["epoch" if name == "leader_epoch" else name for name in rows.column_names])
    pq.write_table(former.replace_schema_metadata(None), part)
    with pytest.raises(HistoryError, match=r"format 1; assay 0.1.0 is the last version"):
        HistoryReader(tmp_path)


@pytest.mark.parametrize(("format", "name", "column"), [(4, "events", "osr"), (5, "faults", "moves_replicas")])
def test_a_column_that_came_later_than_a_file_reads_as_null(
    tmp_path: Path, format: int, name: str, column: str
) -> None:
    write(tmp_path, [(row(1), [])])
    for part in HistoryReader(tmp_path).paths(name):
        older = translation.schema(name, format).names
        rows = pq.read_table(part).select(older)
        pq.write_table(rows.replace_schema_metadata({FORMAT_KEY: str(format).encode()}), part)
    reader = HistoryReader(tmp_path)
    assert (reader.format(name), reader.format("ops")) == (format, FORMAT)
    assert reader.table(name).column(column).null_count == reader.rows(name)


def test_a_file_without_a_format_may_lack_what_is_not_needed(tmp_path: Path) -> None:
    effects = [Effect("register-read", "r", version=4, value=1), Effect("append", "k", message_key="m", position=7)]
    write(tmp_path, [(row(1), effects)])
    for part in HistoryReader(tmp_path).paths("effects"):
        pq.write_table(pq.read_table(part).drop_columns("size").replace_schema_metadata(None), part)
    reader = HistoryReader(tmp_path)
    assert reader.format("effects") == FORMAT
    read, append = reader.table("effects").to_pylist()
    assert (read["kind"], read["version"], read["size"]) == ("register-read", 4, None)
    assert (append["kind"], append["message_key"], append["position"]) == ("append", "m", 7)
    for part in reader.paths("effects"):
        pq.write_table(pq.read_table(part).drop_columns("kind"), part)
    with pytest.raises(HistoryError, match="has no column kind"):
        HistoryReader(tmp_path)


def test_a_file_without_a_format_must_not_have_a_column_twice_even_one_that_is_not_needed(tmp_path: Path) -> None:
    write(tmp_path, [(row(1), [Effect("append", "k", position=7, size=5)])])
    for part in HistoryReader(tmp_path).paths("effects"):
        rows = pq.read_table(part).replace_schema_metadata(None)
        pq.write_table(rows.append_column("size", rows["size"]), part)
    with pytest.raises(HistoryError, match=r"has no column size \(int64\), or has it twice"):
        HistoryReader(tmp_path)


INT64_CHUNK = b"\x15\x04\x19"
"""The begin of a column chunk's metadata in Thrift's compact protocol: the type INT64, and the list of encodings."""


def test_a_footer_on_which_arrow_ends_the_process_is_an_error(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history") as writer:
        writer.completed(Completed(0, 0, "0", Operation("add", "k", 1), Completion(Outcome.OK), 1, 2))
    part = tmp_path / "history" / "ops" / "part-000001.parquet"
    content = part.read_bytes()
    place = content.rindex(INT64_CHUNK)
    part.write_bytes(content[: place + 1] + b"\x40" + content[place + 2 :])
    read = "import pyarrow.parquet as pq, sys; footer = pq.read_metadata(sys.argv[1]); "
    read += "[footer.row_group(0).column(place).statistics for place in range(footer.num_columns)]"
    ended = subprocess.run([sys.executable, "-c", read, str(part)], capture_output=True, check=False)
    assert ended.returncode < 0, "if Arrow raises an exception now, the probe is not needed any more"
    with pytest.raises(HistoryError, match=r"part-000001\.parquet is damaged: reading the statistics in its footer"):
        HistoryReader(tmp_path / "history")
