"""``assay check`` on histories from elsewhere: each command line, its verdict, its refusals; Ctrl-C; progress."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.checkers.engine import Engines
from assay.checkers.judging.judge import ProgressCallback
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.linearizability import MODELS, Limits
from assay.harness.cli import time_estimate
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.cli.time_estimate import TimeEstimate
from assay.harness.core.history import OPS, HistoryWriter
from assay.harness.foreign import MODELS as SHAPES
from assay.harness.foreign import EntryOrder, ForeignFormat, KeyMode
from assay.harness.stored import request
from assay.harness.stored.by_model import find_doubts, judge_by_model, open_stored_operations
from assay.harness.stored.effects_from_ops import write_register_history

from helpers.examples import some_of
from helpers.nightly import by_night


def register(reads: dict[int, int], writes: int = 12) -> str:
    """Writes of 0, 1, 2, ..., each read right after; ``reads``: what was read instead after which write."""
    lines = []
    for value in range(writes):
        read = reads.get(value, value)
        lines += [
            f"{{:process 0, :type :invoke, :f :write, :value {value}}}",
            f"{{:process 0, :type :ok, :f :write, :value {value}}}",
            "{:process 1, :type :invoke, :f :read, :value nil}",
            f"{{:process 1, :type :ok, :f :read, :value {read}}}",
        ]
    return "\n".join(lines) + "\n"


def log(text: str) -> str:
    """Returns the operations as lines of a log."""
    for old, new in (("{:process ", "INFO  jepsen.util - "), (", :type ", "\t"), (", :f ", "\t"), (", :value ", "\t")):
        text = text.replace(old, new)
    return "INFO  jepsen.core - Worker 0 starting\n" + text.replace("}", "")


def verdict(code: int, out: str) -> tuple[int, str]:
    return code, msgspec.json.decode(out, type=Judgement).verdict.value


FORMS = ("lines", "vector", "log", "folder")
READS = {"right": ({}, (0, "pass")), "wrong": ({7: 5}, (1, "fail"))}
EACH = list(itertools.product(FORMS, READS))
BY_DAY = {*((form, "right") for form in FORMS), ("lines", "wrong")}


@pytest.mark.parametrize(("form", "said"), [one if one in BY_DAY else by_night(*one) for one in EACH])
def test_a_register_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, said: str) -> None:
    reads, ends = READS[said]
    text = register(reads)
    path = tmp_path / "history.edn"
    path.write_text({"vector": f"[{text}]", "log": log(text)}.get(form, text))
    if form == "log":
        path = path.rename(tmp_path / "jepsen.log")
    code = main(["check", str(tmp_path if form == "folder" else path), "--model=register", "--json"])
    out = capsys.readouterr().out
    assert verdict(code, out) == ends
    judgement = msgspec.json.decode(out, type=Judgement)
    assert judgement.operations == 24
    assert judgement.examined[0].rows == 24
    assert judgement.examined[0].note == ("1 other line left out" if form == "log" else None)
    if reads:
        assert judgement.anomalies == {"stale-read": 1}


REFUSED = """\
0 :invoke :write 1
0 :ok :write 1
1 :invoke :read nil
1 :fail :read :timed-out
2 :invoke :cas [1 3]
1 :invoke :cas [4 2]
1 :fail :cas [4 2]
2 :info :cas :timed-out
0 :invoke :read nil
0 :ok :read 3
1 :invoke :cas [{expected} 2]
1 :fail :cas {said}
"""


@pytest.mark.parametrize(
    ("expected", "said", "option", "ends"),
    [
        (4, "[4 2]", True, (0, "pass")),
        (3, "[3 2]", True, (1, "fail")),
        (3, "[3 2]", False, (0, "pass")),
        (3, ":timed-out", True, (0, "pass")),
    ],
)
def test_a_refused_cas_contradicts_the_value_it_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expected: int, said: str, option: bool, ends: tuple[int, str]
) -> None:
    """As in old logs of etcd: what timed out may have taken effect, and here did; the last cas failed all the same."""
    text = "2 :invoke :read nil\n2 :ok :read nil\n" * 10 + REFUSED.format(expected=expected, said=said)
    path = tmp_path / "etcd.log"
    path.write_text("".join(f"INFO  jepsen.util - {line}\n" for line in text.splitlines()))
    code = main(["check", str(path), "--model=cas-register", "--json", *(["--cas-refusals"] if option else [])])
    assert verdict(code, capsys.readouterr().out) == ends


def test_what_is_wrong_is_reported_with_the_operations_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h.edn").write_text(register({7: 5}))
    assert main(["check", str(tmp_path / "h.edn"), "--model=register"]) == ExitCode.FAIL
    out = capsys.readouterr().out
    assert out.startswith("FAIL stale-read: ")
    assert "read by process 1, 0.030 - 0.031 s: ok 5" in out
    assert "nemesis" not in out
    assert "left out" not in out


def test_a_key_says_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.edn").write_text(register({7: 5}).replace("{", '{:key "a\x1b[1A\\nPASS" '))
    assert main(["check", str(tmp_path / "h.edn"), "--model=register"]) == ExitCode.FAIL
    out = capsys.readouterr().out
    assert out.startswith("FAIL stale-read: ")
    assert out.replace("\n", "").isprintable()
    assert not any(line.startswith("PASS") for line in out.splitlines())


@pytest.mark.parametrize("text", ["[]", "{:process :nemesis :type :info :f :start}", "[0 :invoke :read nil]"])
def test_a_history_without_a_success_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "h.edn").write_text(text)
    code = main(["check", str(tmp_path / "h.edn"), "--model=register", "--json"])
    assert verdict(code, capsys.readouterr().out) == (ExitCode.UNKNOWN, "unknown")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on standard error."""
    code = main(["check", *arguments])
    recorded = capsys.readouterr()
    assert (code, recorded.out) == (ExitCode.USAGE, "")
    (line,) = recorded.err.splitlines()
    assert line.startswith("assay: ")
    return line


def test_what_cannot_be_judged_is_one_line_and_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text("[" + register({}))
    where = f"{path}: line 1, column 1: this vector is never closed: the file is cut short"
    assert where in refused(capsys, str(path), "--model=register")
    assert where in refused(capsys, str(path), "--model=register", "--json")
    assert "--model=register|cas-register|kv" in refused(capsys, str(path))
    assert "line 1, column 2: :write is no operation of mutex" in refused(capsys, str(path), "--model=mutex")
    assert "--format=parquet is for a folder" in refused(capsys, str(path), "--format=parquet")
    assert "no such line" not in refused(capsys, str(tmp_path / "none.edn"), "--model=register")
    (tmp_path / "sub").mkdir()
    assert "--format=edn is for a file" in refused(capsys, str(tmp_path / "sub"), "--format=edn")
    assert "there is no ops/ in it" in refused(capsys, str(tmp_path / "sub"), "--model=register")
    assert "--model=kv has none" in refused(capsys, str(path), "--model=kv", "--cas-refusals")
    folder = refused(capsys, str(tmp_path / "sub"), "--model=cas-register", "--cas-refusals")
    assert "--cas-refusals is for a file" in folder
    path.write_bytes(b"")
    assert "the file is empty" in refused(capsys, str(path), "--model=register")
    path.write_bytes(b"\x1f\x8b\x08")
    assert "the compressed file is damaged or cut short" in refused(capsys, str(path), "--model=register")
    other = tmp_path / "other.txt"
    other.write_text("a,b\n")
    assert "--format=edn or --format=json" in refused(capsys, str(other), "--model=register")
    for option in (
        "--model=lisp", "--model=a b:C", "--format=csv", "--keys=some", "--order=random", "--time-limit=0",
        "--time-limit=nan", "--time-limit=soon", "--memory-limit=2", "--memory-limit=0GB", "--memory-limit=-1GB",
        "--memory-limit=1kB", "--memory-limit=much", f"--memory-limit={'9' * 400}GB", "--memory-limit=9999999TB",
    ):  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            main(["check", str(path), option])
        assert caught.value.code == ExitCode.USAGE


def test_options_say_how_a_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(register({}).replace(":value ", ":value [:k ").replace("}", "]}"))
    code = main(["check", str(path), "--model=register", "--keys=tuples", "--json"])
    assert verdict(code, capsys.readouterr().out) == (ExitCode.PASS, "pass")
    backwards = "".join(
        line.replace("}", f" :time {100 - number}}}") for number, line in enumerate(register({}).splitlines(True))
    )
    path.write_text(backwards)
    assert "time goes backwards" in refused(capsys, str(path), "--model=register")
    code = main(["check", str(path), "--model=register", "--order=file", "--json"])
    assert verdict(code, capsys.readouterr().out) == (ExitCode.PASS, "pass")


def test_the_options_offer_what_there_is() -> None:
    """They are written down a second time, so that ``assay --help`` loads nothing heavy."""
    assert tuple(MODELS) == tuple(SHAPES) == request.MODEL_NAMES
    assert ("auto", "parquet", *ForeignFormat) == request.FORMATS
    assert tuple(KeyMode) == request.KEYS
    assert tuple(EntryOrder) == request.ORDERS


def test_help_has_an_example_for_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    out = capsys.readouterr().out
    for words in (
        "assay check store/latest", "assay check history/ ", "assay check history.edn --model=cas-register",
        "assay check jepsen.log --model=", "--keys=tuples", "INFO  jepsen.util - 0 :invoke", ":f :get, :key", "130",
        "--model=bank.models:Account", "--time-limit=60 --memory-limit=2GB", "--spark-master=yarn",
    ):  # fmt: skip
        assert words in out


def table(*rows: tuple[Any, ...]) -> pa.Table:
    """(process, f, key, argument, result, outcome) one after another."""
    return pa.Table.from_pylist(
        [
            {
                "index": number, "process": process, "worker": str(process), "f": f, "key": key, "argument": argument,
                "result": result, "call": 10 * number, "ret": None if outcome == "info" else 10 * number + 5,
                "outcome": outcome, "phase": "main",
            }
            for number, (process, f, key, argument, result, outcome) in enumerate(rows)
        ],
        schema=OPS,
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 100])
def test_effects_are_made_only_of_what_the_checks_can_judge(batch: int, tmp_path: Path) -> None:
    ops = table(
        (0, "write", None, "1", "1", "ok"),
        (0, "cas", None, "[1,2]", "[1,2]", "info"),
        (1, "read", None, "null", "2", "ok"),
        (1, "cas", None, "[null,3]", None, "fail"),
        (1, "write", None, "3", None, "fail"),
    )
    history = write_register_history(ops.to_batches(max_chunksize=batch), tmp_path / "good")
    assert history is not None
    assert history.table("ops").equals(ops)
    effects = history.table("effects")
    assert [(row["kind"], row["value"], row["expected"], row["outcome"]) for row in effects.to_pylist()] == [
        ("register-write", 1, None, "ok"), ("register-cas", 2, 1, "info"),
        ("register-read", 2, None, "ok"), ("register-cas", 3, None, "fail"),
        ("register-write", 3, None, "fail"),
    ]  # fmt: skip
    for number, rows in enumerate(
        (
            [],
            [(0, "write", None, "1", None, "ok"), (0, "write", None, "1", None, "ok")],
            [(0, "write", None, "null", None, "ok")],
            [(0, "write", None, '"a"', None, "ok")],
            [(0, "write", None, "1.0", None, "ok")],
            [(0, "write", None, str(2**63), None, "ok")],
            [(0, "write", None, str(-(2**63)), None, "ok")],
            [(0, "read", None, "null", "[1]", "ok")],
            [(0, "cas", None, "[1,1]", "[1,1]", "ok")],
            [(0, "cas", None, "[1,2]", "false", "ok")],
            [(0, "cas", None, '["a",2]', None, "ok")],
            [(0, "write", "a", "1", None, "ok"), (0, "write", None, "2", None, "ok")],
            [(0, "append", None, "1", None, "ok")],
        )
    ):
        assert write_register_history(table(*rows).to_batches(max_chunksize=batch), tmp_path / str(number)) is None, (
            rows
        )


def many(keys: int, each: int = 6) -> pa.Table:
    """Gets of as many keys, round and round."""
    return table(*[(0, "get", f"k{number % keys}", "null", '""', "ok") for number in range(keys * each)])


def rejudged(ops: pa.Table, watch: ProgressCallback = lambda what, done, total: None) -> Judgement:
    with Engines("duckdb") as engines:
        return judge_by_model(ops, MODELS["kv"], engines, watch, Limits())


def test_progress_is_reported_in_operations() -> None:
    steps: list[tuple[str, int, int]] = []
    assert rejudged(many(5), lambda *step: steps.append(step)).verdict is Verdict.PASS
    assert steps == [("searching 5 keys", done, 30) for done in range(0, 31, 6)]


@pytest.mark.parametrize(("before", "ends"), [('""', Verdict.UNKNOWN), ('"x"', Verdict.FAIL)])
def test_ctrl_c_in_a_search_leaves_what_is_known(before: str, ends: Verdict) -> None:
    def watch(what: str, done: int, total: int) -> None:
        if done == 12:
            signal.raise_signal(signal.SIGINT)

    judgement = rejudged(table(*[(0, "get", f"k{number % 5}", "null", before, "ok") for number in range(30)]), watch)
    assert judgement.verdict is ends
    assert judgement.interrupted
    assert "interrupted; 2 of 5 keys were searched" in judgement.unknown
    assert len(judgement.findings) == (2 if ends is Verdict.FAIL else 0)


def interrupted_once(stage: str, done: int) -> Any:
    """In place of ``TimeEstimate.step``: Ctrl-C at a step of this stage that comes after so many others."""

    def step(_: TimeEstimate, what: str, now: float, total: float) -> None:
        if what.startswith(stage) and now == done:
            signal.raise_signal(signal.SIGINT)

    return step


@pytest.mark.parametrize(("reads", "word"), [({}, "UNKNOWN"), ({7: 99}, "FAIL")])
def test_ctrl_c_prints_the_checks_that_were_done_and_exits_130(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reads: dict[int, int],
    word: str,
) -> None:
    """During the second check; the first has found the value that no operation wrote."""
    monkeypatch.setattr(TimeEstimate, "step", interrupted_once("checking, now ", 1))
    (tmp_path / "h.edn").write_text(register(reads))
    assert main(["check", str(tmp_path / "h.edn"), "--model=register"]) == ExitCode.INTERRUPTED
    recorded = capsys.readouterr()
    assert recorded.out.startswith(word)
    assert "interrupted; of the checks, only these were done: missing-writer" in recorded.out
    assert recorded.err.splitlines() == ["assay: interrupted"]


def test_ctrl_c_during_a_query_is_no_engine_error() -> None:
    from assay.checkers.engine.duck import _to_error

    assert isinstance(_to_error(RuntimeError("Query interrupted"), "select 1"), KeyboardInterrupt)


def test_too_little_proves_nothing() -> None:
    assert find_doubts(table()) == ["the history is empty"]
    assert find_doubts(table((0, "get", "k", "null", None, "info"))) == ["none of 1 operation succeeded"]
    unknown = table((0, "put", "k", '"a"', None, "info"), (1, "get", "k", "null", '"a"', "ok"))
    assert find_doubts(unknown) == ["none of 1 operation that can change the state succeeded"]
    assert find_doubts(unknown, custom=True) == []
    writes = table(*[(0, "put", "k", '"a"', None, "ok")] * 12)
    assert find_doubts(writes) == [
        "no operation that could contradict another (read, get, cas, dequeue, acquire, contains) succeeded"
    ]
    assert find_doubts(many(2)) == []
    assert rejudged(writes).verdict is Verdict.UNKNOWN


def test_a_folder_of_parquet_gives_the_same_operations_and_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h.edn").write_text(register({7: 5}))
    from assay.harness.foreign import read_history

    ops = read_history(tmp_path / "h.edn", ForeignFormat.EDN, "register").ops
    with HistoryWriter(tmp_path / "history") as writer:
        for batch in ops.to_batches():
            writer.batch("ops", batch)
    assert open_stored_operations(tmp_path / "history").table("ops").equals(ops)
    code = main(["check", str(tmp_path / "history"), "--model=register", "--json"])
    assert verdict(code, capsys.readouterr().out) == (ExitCode.FAIL, "fail")


def test_an_estimate_tells_how_much_is_left() -> None:
    assert time_estimate.describe_progress("reading h.edn", 0, 100, 0.0) == "reading h.edn: 0%"
    assert time_estimate.describe_progress("reading h.edn", 25, 100, 0.5) == "reading h.edn: 25%"
    assert time_estimate.describe_progress("reading h.edn", 25, 100, 10.0) == "reading h.edn: 25%, about 30 s left"
    assert time_estimate.describe_progress("x", 1, 100, 600.0) == "x: 1%, about 16.5 h left"
    assert time_estimate.describe_progress("x", 10, 100, 60.0) == "x: 10%, about 9 min left"
    assert time_estimate.describe_progress("x", 3, 0, 60.0) == "x"
    assert time_estimate.describe_progress("x", 200, 100, 60.0) == "x: 100%, about 0 s left"


def test_an_estimate_is_shown_five_times_a_second_at_most() -> None:
    now, shown = [0.0], []
    one = TimeEstimate(shown.append, clock=lambda: now[0])
    for tick in range(100):
        now[0] = tick / 10
        one.step("reading", tick, 100)
    assert 45 <= len(shown) <= 51
    now[0] = 20.0
    one.step("checking", 0, 10)
    now[0] = 25.0
    one.step("checking", 5, 10)
    assert shown[-2:] == ["checking: 0%", "checking: 50%, about 5 s left"]


def parquet(folder: Path) -> Path:
    with HistoryWriter(folder) as writer:
        for batch in many(2, each=8).to_batches():
            writer.batch("ops", batch)
    return folder


@settings(max_examples=some_of(30), deadline=None)
@given(data=st.data())
def test_a_part_that_was_cut_or_bent_is_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = parquet(tmp_path_factory.mktemp("bent") / "history")
    part = folder / "ops" / "part-000001.parquet"
    content = bytearray(part.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    for _ in range(data.draw(st.integers(0, 4)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    part.write_bytes(bytes(content))
    assert main(["check", str(folder)]) in (ExitCode.USAGE, ExitCode.UNKNOWN)  # nothing but the model judges gets
    code = main(["check", str(folder), "--model=kv"])
    assert code in (ExitCode.USAGE, ExitCode.UNKNOWN) or open_stored_operations(folder).table("ops").equals(
        many(2, each=8)
    )


TYPES = [pa.int8(), pa.uint64(), pa.float64(), pa.bool_(), pa.binary(), pa.large_string(), pa.timestamp("ns"),
         pa.list_(pa.int64()), pa.decimal128(10), pa.dictionary(pa.int8(), pa.string()), pa.null(), None]  # fmt: skip


OF_OPS = ("index", "key", "argument", "call", "outcome")


def by_day(column: int, kind: int) -> tuple[pytest.MarkDecorator, ...]:
    """Every kind once, and every column with some; the nightly run tries all pairs."""
    return () if kind % len(OF_OPS) == column else (pytest.mark.long,)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        pytest.param(column, kind, id=f"{column}-{kind}", marks=by_day(at, number))
        for at, column in enumerate(OF_OPS)
        for number, kind in enumerate(TYPES)
    ],
)
def test_columns_of_other_types_are_read_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str, kind: pa.DataType | None
) -> None:
    """None: the column is missing."""
    folder = parquet(tmp_path / "history")
    part = folder / "ops" / "part-000001.parquet"
    whole = pq.read_table(part)
    at = whole.schema.get_field_index(column)
    if kind is None:
        changed = whole.remove_column(at)
    else:
        try:
            values = whole.column(column).cast(kind)
        except (pa.ArrowException, NotImplementedError):
            values = pa.nulls(whole.num_rows, kind)
        changed = whole.set_column(at, column, values)
    pq.write_table(changed, part)
    code = main(["check", str(folder), "--model=kv"])
    recorded = capsys.readouterr()
    assert "Traceback" not in recorded.err
    assert code in (ExitCode.USAGE, ExitCode.UNKNOWN) or open_stored_operations(folder).table("ops").equals(
        many(2, each=8)
    ), recorded


def replaced(folder: Path, column: str, values: pa.Array) -> Path:
    """A part that some process else wrote."""
    part = folder / "ops" / "part-000001.parquet"
    whole = pq.read_table(part)
    pq.write_table(whole.set_column(whole.schema.get_field_index(column), column, values), part, row_group_size=5)
    (folder / "closed.json").unlink()
    return part


BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 16, pa.array([b"ok"] * 7 + [b"\xff\xfe"] + [b"ok"] * 8, pa.binary()).buffers()
)


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("call", pa.array([*range(7), 2**63, *range(8)], pa.uint64()), "row 8: call does not fit int64: "),
        ("process", pa.array([0] * 7 + [2**40] * 9), "row 8: process does not fit int32: "),
        ("key", BAD_TEXT, "row 8: key does not fit string: "),
        ("outcome", BAD_TEXT, "row 8: outcome does not fit string: "),
    ],
)
@pytest.mark.parametrize("model", [[], ["--model=kv"]])
def test_values_that_the_format_has_no_place_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str, values: pa.Array, reason: str, model: list[str]
) -> None:
    part = replaced(parquet(tmp_path / "history"), column, values)
    assert f"{part}: {reason}" in refused(capsys, str(tmp_path / "history"), *model)


def test_what_is_no_json_and_no_mark_of_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced(parquet(tmp_path / "a"), "argument", pa.array(["null"] * 5 + ["{oops"] * 11))
    assert "argument of operation 5 is no JSON" in refused(capsys, str(tmp_path / "a"), "--model=kv")
    (parquet(tmp_path / "b") / "closed.json").unlink()
    (tmp_path / "b" / "closed.json").mkdir()
    assert "closed.json is damaged" in refused(capsys, str(tmp_path / "b"))


@pytest.mark.parametrize("kept", [True, False])
def test_a_queue_goes_through_the_search(kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First in first out, or the other way round."""
    lines = []
    for n in range(8):
        lines += [f"{{:process 0, :type {kind}, :f :enqueue, :value {n}}}" for kind in (":invoke", ":ok")]
    for n in range(8) if kept else reversed(range(8)):
        lines += [
            "{:process 0, :type :invoke, :f :dequeue, :value nil}",
            f"{{:process 0, :type :ok, :f :dequeue, :value {n}}}",
        ]
    (tmp_path / "h.edn").write_text("\n".join(lines) + "\n")
    code = main(["check", str(tmp_path / "h.edn"), "--model=fifo-queue", "--json"])
    assert verdict(code, capsys.readouterr().out) == ((ExitCode.PASS, "pass") if kept else (ExitCode.FAIL, "fail"))
