"""``assay check`` on malformed, truncated and contradictory files: one error with file, row and reason, and exit 64."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_integrity import require_unchanged
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.history import CLOSED, SCHEMAS, HistoryWriter
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.harness.run.registry import Registry
from assay.harness.run.store import FINISHED, RunInfo
from assay.harness.stored.by_contract import StoredHistory, judge_again

from helpers.nightly import a_share_by_day

KEY = "orders-0"
STEP = 1_000_000
Row = dict[str, Any]


RUN = RunInfo(
    test="t.py::t[none]", status=FINISHED, started="2026-01-01T00:00:00+00:00", owner="1", seed=3, cluster="sim",
    nemesis="none", command="pytest t.py --seed=3",
)  # fmt: skip


def good(folder: Path) -> Path:
    """Twelve operations of two processes, two faults, three events, one replica's record; it can be judged."""
    with HistoryWriter(folder) as writer:
        for index in range(12):
            call = (4 * index + 1) * STEP
            outcome = Outcome.INFO if index == 11 else Outcome.OK
            writer.completed(
                Completed(
                    index, index % 2, "w0", Operation("send", KEY, [index]), Completion(outcome), call,
                    None if outcome is Outcome.INFO else call + STEP,
                ),
                [Effect("append", KEY, position=None if outcome is Outcome.INFO else index, value=index)],
            )  # fmt: skip
        for id in (1, 2):
            for step, phase in enumerate(("intended", "injected", "healed", "recovered")):
                time = (10 * id + step) * STEP
                writer.fault(
                    id=id, fault="kill", targets=["n1"], phase=phase, time=time, took_effect=phase == "healed" or None
                )
        for seq in range(3):
            writer.event(time=seq, node="n1", incarnation=1, seq=seq, event="started")
        writer.replica(node="n1", key=KEY, position=0, value=0, below_hw=True, in_isr=True)
    return folder


def part(history: Path, data: str) -> Path:
    """The one part with rows; the first is empty."""
    return history / data / "part-000001.parquet"


def rewrite(history: Path, data: str, change: Callable[[list[Row]], Iterable[Row] | None]) -> None:
    """Changes the rows of a data set as some process else's program might have written them: all columns nullable."""
    path = part(history, data)
    rows = pq.read_table(path).to_pylist()
    changed = change(rows)
    schema = pa.schema([field.with_nullable(True) for field in SCHEMAS[data]])
    pq.write_table(pa.Table.from_pylist(list(rows if changed is None else changed), schema=schema), path)


def recount(history: Path) -> None:
    """As if the writer had written what is there now: so that nothing but the rows themselves is wrong."""
    closed = msgspec.json.decode((history / CLOSED).read_bytes())
    closed["rows"] = {
        name: sum(pq.read_metadata(path).num_rows for path in (history / name).glob("*.parquet")) for name in SCHEMAS
    }
    (history / CLOSED).write_bytes(msgspec.json.encode(closed))


def put(number: int, **given: Any) -> Callable[[list[Row]], None]:
    """Sets columns of row ``number``, from 0."""
    return lambda rows: rows[number].update(given)


def again(number: int) -> Callable[[list[Row]], None]:
    """Appends a copy of one row."""
    return lambda rows: rows.append(dict(rows[number]))


@dataclass(frozen=True)
class Case:
    """``row`` counts from 1, as the message does."""

    data: str
    change: Callable[[list[Row]], Iterable[Row] | None]
    row: int
    reason: str


ROWS = {
    "a return before its call": Case("ops", put(3, ret=5), 4, "operation 3 returned at 5 ns, not after its call at 13"),
    "a return at its call": Case("ops", put(3, ret=13 * STEP), 4, "not after its call"),
    "the lowest value of a max register": Case(
        "effects", put(4, kind="max-write", value=-(2**63)), 5, "a max register holds a value that is not above"
    ),
    "ok without ret": Case("ops", put(4, ret=None), 5, "operation 4 ended ok, but has no ret"),
    "fail without ret": Case("ops", put(4, ret=None, outcome="fail"), 5, "operation 4 ended fail, but has no ret"),
    "info with ret": Case("ops", put(5, outcome="info"), 6, "operation 5 ended info, but has the ret 22000000 ns"),
    "an unknown outcome": Case("ops", put(2, outcome="maybe"), 3, "outcome is 'maybe', which is none of ok, fail,"),
    "an unknown phase": Case("ops", put(2, phase="late"), 3, "phase is 'late', which is none of main, sentinel, drain"),
    "no value where one must be": Case("ops", put(7, process=None), 8, "process has no value"),
    "no call": Case("ops", put(7, call=None), 8, "call has no value"),
    "no index": Case("ops", put(7, index=None), 8, "index has no value"),
    "an index twice": Case("ops", again(6), 13, "operation 6 occurs 2 times"),
    "a stamp twice": Case("ops", put(6, call=22 * STEP), 7, "operation 6 has the stamp 22000000 ns, and so has op"),
    "time that goes backwards": Case(
        "ops", put(8, call=2 * STEP + 1, ret=2 * STEP + 2), 9, "time goes backwards: process 0 called operation 8"
    ),
    "two open calls": Case(
        "ops", put(4, ret=26 * STEP + 7), 7, "process 0 has two open calls: operation 6 at 25000000 ns, while its opera"
    ),
    "a call after info": Case(
        "ops", put(4, ret=None, outcome="info"), 7, "its operation 4, called at 17000000 ns, never returned"
    ),
    "an effect of no operation": Case("effects", put(3, op=99), 4, "an effect of operation 99, which is not in ops"),
    "an effect's unknown outcome": Case("effects", put(3, outcome="OK"), 4, "outcome is 'OK', which is none of"),
    "an effect's unknown phase": Case("effects", put(3, phase=""), 4, "phase is '', which is none of"),
    "an effect without a kind": Case("effects", put(3, kind=None), 4, "kind has no value"),
    "an effect twice": Case("effects", again(5), 13, "effect 0 of operation 5 occurs 2 times"),
    "an effect at another time": Case("effects", put(3, call=1), 4, "call is 1, but that of operation 3 is 13000000"),
    "an effect with another end": Case("effects", put(3, ret=None), 4, "ret is None, but that of operation 3 is"),
    "an effect of another process": Case("effects", put(3, process=0), 4, "process is 0, but that of operation 3 is 1"),
    "a fault's unknown phase": Case("faults", put(1, phase="begun"), 2, "phase is 'begun', which is none of intended"),
    "a heal before the injection": Case(
        "faults", put(6, time=20 * STEP + 5), 7, "fault 2 was healed at 20000005 ns, before it was injected at 21000000"
    ),
    "a heal without injection": Case(
        "faults", lambda rows: [row for row in rows if (row["id"], row["phase"]) != (2, "injected")], 6,
        "fault 2 is healed, but was never injected",
    ),
    "an injection that no one meant yet": Case(
        "faults", put(0, time=99 * STEP), 2, "fault 1 was injected at 11000000 ns, before it was intended"
    ),
    "a fault without a time": Case("faults", put(1, time=None), 2, "time has no value"),
    "an event without a node": Case("events", put(1, node=None), 2, "node has no value"),
    "an event with an expression": Case("events", put(1, isr="(1|1)+"), 2, "isr is '(1|1)+', and must be numbers of n"),
    "an event with names": Case("events", put(1, gone="n1,n2"), 2, "gone is 'n1,n2', and must be numbers of nodes"),
    "a replica's record without a place": Case("replicas", put(0, position=None), 1, "position has no value"),
}  # fmt: skip


def refused(history: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that ``assay check --json`` writes to standard error, and nothing to standard output."""
    code = main(["check", str(history), "--json"])
    recorded = capsys.readouterr()
    assert code == ExitCode.USAGE, recorded
    assert recorded.out == ""
    (line,) = recorded.err.splitlines()
    assert line.startswith("assay: ")
    return line


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return good(tmp_path / "history")


def test_the_history_itself_can_be_judged(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(history), "--json"]) == ExitCode.UNKNOWN  # nothing was read in it
    judgement = msgspec.json.decode(capsys.readouterr().out, type=Judgement)
    assert (judgement.operations, judgement.effects, judgement.engine) == (12, 12, "sqlite")


@pytest.mark.parametrize("name", a_share_by_day(3, ROWS))
def test_a_row_that_cannot_be(history: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    case = ROWS[name]
    rewrite(history, case.data, case.change)
    recount(history)
    line = refused(history, capsys)
    assert f"{part(history, case.data)}: row {case.row}: " in line
    assert case.reason in line


def _drop_column(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["call"]), path)


def _text_for_number(path: Path) -> None:
    table = pq.read_table(path)
    position = table.schema.get_field_index("call")
    pq.write_table(table.set_column(position, "call", table.column("call").cast(pa.string())), path)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _cut_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def _other_file(path: Path) -> None:
    path.write_text("index,process\n1,2\n")


def _bend(path: Path) -> None:
    """Damages the pages of one column and leaves the footer as it is."""
    group, data = pq.read_metadata(path).row_group(0), bytearray(path.read_bytes())
    column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == "call")
    for place in range(column.data_page_offset, column.data_page_offset + 12):
        data[place] ^= 0x5A
    path.write_bytes(bytes(data))


def _garble(path: Path) -> None:
    """Damages all but the frame; the reader's own words for it hold bytes that are no text."""
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(byte ^ 0x5A for byte in data[4:-8]) + data[-8:])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_drop_column, "has no column call"),
        (_text_for_number, "column call is string where"),
        (_cut, "is not a Parquet file"),
        (_cut_to_nothing, "is not a Parquet file"),
        (_other_file, "is not a Parquet file"),
        (_garble, "is not a Parquet file"),
        (_bend, "row 1 or one soon after it cannot be read"),
    ],
)
@pytest.mark.parametrize("data", ["ops", "effects"])
@pytest.mark.parametrize("closed", [True, False])
def test_a_part_that_cannot_be_read(
    history: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    reason: str,
    data: str,
    closed: bool,
) -> None:
    if not closed:
        (history / CLOSED).unlink()
    damage(part(history, data))
    line = refused(history, capsys)
    assert str(part(history, data)) in line
    assert reason in line


@pytest.mark.parametrize("data", ["ops", "effects"])
@pytest.mark.parametrize("name", ["day=2/part-1.parquet", "part-1.PARQUET", "part-1.parquet.gz", "part-1"])
def test_a_part_that_would_not_be_read(history: Path, capsys: pytest.CaptureFixture[str], data: str, name: str) -> None:
    (history / CLOSED).unlink()
    added = history / data / name
    added.parent.mkdir(exist_ok=True)
    shutil.copy(part(history, data), added)
    assert f"{history / data / Path(name).parts[0]} would not be read" in refused(history, capsys)


def test_files_that_tools_write_next_to_parts_are_left_alone(history: Path) -> None:
    (history / CLOSED).unlink()
    for name in ("_SUCCESS", ".part-1.parquet.crc", "part-1.parquet.crc", "_metadata"):
        (history / "ops" / name).touch()
    assert open_history(history).rows("ops") > 0


def test_a_part_that_is_missing(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part(history, "effects").unlink()
    line = refused(history, capsys)
    assert f"{history / 'effects'}: its parts have 0 rows, but closed.json says that 12 were written" in line


def test_files_are_read_once_to_compare_them_with_what_was_written(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, opened = open_history(history), list[Path]()
    open_part = pq.ParquetFile

    def note_and_open(path: Path) -> pq.ParquetFile:
        opened.append(path)
        return open_part(path)

    monkeypatch.setattr(pq, "ParquetFile", note_and_open)
    require_unchanged(reader)
    assert sorted(opened) == sorted(path for name in SCHEMAS for path in reader.paths(name))


def test_a_value_that_was_changed_afterwards(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(history, "effects", put(3, value=1000))
    assert "the parts hold other rows than those that were written" in refused(history, capsys)


@pytest.mark.parametrize(("data", "change"), [("events", put(1, event="star\0ted")), ("replicas", put(0, epoch=16))])
def test_a_report_of_a_server_that_was_changed_afterwards(
    history: Path, capsys: pytest.CaptureFixture[str], data: str, change: Callable[[list[Row]], None]
) -> None:
    """A bit of a Parquet file that turns may leave a readable file, in which an anomaly cannot be seen any more."""
    rewrite(history, data, change)
    assert "the digest of events, replicas, looks is not" in refused(history, capsys)


def test_a_mark_of_the_end_that_is_damaged(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (history / CLOSED).write_text('{"digest": 7')
    assert f"{history / CLOSED} is damaged" in refused(history, capsys)


@pytest.mark.parametrize("data", ["ops", "effects"])
def test_a_data_set_that_is_missing(history: Path, capsys: pytest.CaptureFixture[str], data: str) -> None:
    shutil.rmtree(history / data)
    assert data in refused(history, capsys)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"contract": {"forbidden": 7}}'])
def test_a_run_whose_own_file_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Without its settings.json it is judged, as far as that is possible: see test_contracts.py."""
    good(tmp_path / "run" / "history")
    (tmp_path / "run" / "run.json").write_text(text)
    assert str(tmp_path / "run" / "run.json") in refused(tmp_path / "run", capsys)


def test_a_history_of_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good(tmp_path / "run" / "history")
    (tmp_path / "run" / "run.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(RUN, digest="0" * 32)))
    assert "it is not this run's history" in refused(tmp_path / "run", capsys)


def test_a_killed_run_may_have_effects_whose_operations_were_not_written(tmp_path: Path) -> None:
    """Effects are sealed first; such a history is incomplete, not malformed."""
    history = good(tmp_path / "run" / "history")
    rewrite(history, "ops", lambda rows: rows[:-1])
    (history / CLOSED).unlink()
    stored = StoredHistory(history=history, run=history.parent, info=None, contract=Contract(), closed=False)
    with Engines() as engines:
        judgement = judge_again(stored, open_history(history), engines, Registry.standard())
    assert "not closed" in " ".join(judgement.unknown)


def test_two_engines_or_a_master_for_duckdb_is_wrong_usage(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(history), "--engine=duckdb", "--spark-master=yarn"]) == ExitCode.USAGE
    assert "--spark-master=yarn needs --engine=spark or --engine=auto" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["check", str(history), "--engine=abacus"])
    assert caught.value.code == ExitCode.USAGE


def test_spark_without_java_is_reported_with_the_remedy(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["check", str(history), "--engine=spark"]) == ExitCode.USAGE
    assert "install" in capsys.readouterr().err


def test_the_checks_keep_to_a_memory_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = good(tmp_path / "history")
    code = main(["check", str(history), "--engine=duckdb"])
    text = capsys.readouterr().out
    assert (main(["check", str(history), "--engine=duckdb", "--memory-limit=100MB"]), capsys.readouterr().out) == (
        code,
        text,
    )
    assert main(["check", str(history), "--engine=duckdb", "--memory-limit=1MB"]) == ExitCode.USAGE
    assert "a greater --memory-limit" in capsys.readouterr().err


def test_a_time_limit_is_for_the_search_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(good(tmp_path / "history")), "--time-limit=5"]) == ExitCode.USAGE
    assert (
        capsys.readouterr().err
        == "assay: --time-limit applies only to the search with --model, and to isolation levels\n"
    )
