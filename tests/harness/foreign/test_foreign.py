"""Whole files: random histories come back as the operations that they stand for; bad ones are refused."""

from __future__ import annotations

import contextlib
import gzip
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.core.history import OPS
from assay.harness.foreign import EntryOrder, ForeignFormat, KeyMode, MalformedError, read_history, recognise_format
from assay.harness.foreign.entry_order import ENTRY_INTERVAL
from assay.harness.foreign.source import read_lines

from helpers.examples import some_of
from helpers.foreign_histories import MODEL, Recorded, as_edn, as_log, histories


def written(folder: Path, text: str | bytes, name: str = "h") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("foreign")


def expected(recorded: Recorded, *, times: bool) -> list[dict[str, Any]]:
    """The rows of ``ops``; events at one time are a nanosecond apart."""
    stamps: dict[int, int] = {}
    last = -1
    for position, event in enumerate(recorded.events):
        if event["process"] is not None:
            last = max(event["time"], last + 1) if times else position * ENTRY_INTERVAL
            stamps[position] = last
    return [
        {
            **{name: row[name] for name in ("index", "process", "worker", "f", "key", "argument", "result")},
            "call": stamps[row["position"]],
            "ret": stamps[row["end"][0]] if row["end"] else None,
            **{name: row[name] for name in ("outcome", "error")},
            "phase": "main",
            "scheduled": None,
        }
        for row in recorded.rows
    ]


def keys(recorded: Recorded) -> KeyMode:
    return KeyMode.TUPLES if recorded.keyed else KeyMode.NONE


@settings(max_examples=some_of(60), deadline=None)
@given(
    recorded=histories(),
    vector=st.booleans(),
    times=st.booleans(),
    indexes=st.booleans(),
    tag=st.sampled_from([None, "jepsen.history.Op"]),
)
def test_a_history_in_edn_is_its_operations(
    folder: Path, recorded: Recorded, vector: bool, times: bool, indexes: bool, tag: str | None
) -> None:
    path = written(folder, as_edn(recorded, vector=vector, times=times, indexes=indexes, tag=tag))
    foreign = read_history(path, ForeignFormat.EDN, MODEL, keys=keys(recorded))
    assert foreign.ops.schema.equals(OPS)
    assert foreign.ops.to_pylist() == expected(recorded, times=times)
    assert foreign.nemesis == sum(event["process"] is None for event in recorded.events)
    assert recognise_format(path) is ForeignFormat.EDN


@pytest.mark.parametrize("name", ["history", "history.edn"])
def test_the_format_of_a_pipe_is_not_guessed(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(MalformedError, match="this is no regular file"):
        recognise_format(tmp_path / name)


@settings(max_examples=some_of(60), deadline=None)
@given(recorded=histories(), noise=st.booleans())
def test_a_log_and_edn_give_equal_tables(folder: Path, recorded: Recorded, noise: bool) -> None:
    path = written(folder, as_log(recorded, noise))
    foreign = read_history(path, ForeignFormat.JEPSEN_LOG, MODEL, keys=keys(recorded))
    edn = read_history(
        written(folder, as_edn(recorded, vector=True), "e"), ForeignFormat.EDN, MODEL, keys=keys(recorded)
    )
    assert foreign.ops.equals(edn.ops)
    assert foreign.ops.to_pylist() == expected(recorded, times=False)
    assert foreign.skipped == as_log(recorded, noise).count("\n") - len(recorded.events)
    assert recognise_format(path) is ForeignFormat.JEPSEN_LOG


@settings(max_examples=some_of(40), deadline=None)
@given(recorded=histories())
def test_keys_are_found_out_or_asked_for(folder: Path, recorded: Recorded) -> None:
    path = written(folder, as_edn(recorded, vector=True))
    assert read_history(path, ForeignFormat.EDN, MODEL).ops.equals(
        read_history(path, ForeignFormat.EDN, MODEL, keys=keys(recorded)).ops
    )


@settings(max_examples=some_of(150), deadline=None)
@given(recorded=histories(most=8), data=st.data(), log=st.booleans(), vector=st.booleans())
def test_what_is_cut_or_bent_is_read_or_refused(
    folder: Path, recorded: Recorded, data: st.DataObject, log: bool, vector: bool
) -> None:
    """Never anything but a table or the one error; a vector that is cut is never read."""
    whole = (as_log(recorded) if log else as_edn(recorded, vector=vector, times=True, indexes=True)).encode()
    end = data.draw(st.integers(0, len(whole)))
    bent = bytearray(whole[:end])
    for _ in range(data.draw(st.integers(0, 3)) if bent else 0):
        bent[data.draw(st.integers(0, len(bent) - 1))] = data.draw(st.integers(0, 255))
    path = written(folder, bytes(bent))
    try:
        ops = read_history(path, ForeignFormat.JEPSEN_LOG if log else ForeignFormat.EDN, MODEL).ops
    except MalformedError as error:
        recorded = str(error)
    else:
        recorded = f"{path}: read"
        assert isinstance(ops, pa.Table)
        if bytes(bent) == whole[:end] and vector and not log:
            assert end >= len(whole.rstrip())
    assert recorded.startswith(f"{path}:")
    assert "\n" not in recorded
    if end == 0:
        with pytest.raises(MalformedError, match="empty"):
            read_history(path, ForeignFormat.EDN, MODEL)


@settings(max_examples=some_of(60), deadline=None)
@given(recorded=histories(most=8), data=st.data(), log=st.booleans())
def test_a_file_that_is_cut_and_read_holds_what_was_written(
    folder: Path, recorded: Recorded, data: st.DataObject, log: bool
) -> None:
    """Line by line: at most the end is missing, and nothing is another than it was."""
    whole = as_log(recorded) if log else as_edn(recorded, vector=False)
    format = ForeignFormat.JEPSEN_LOG if log else ForeignFormat.EDN
    path = written(folder, whole.encode()[: data.draw(st.integers(1, len(whole.encode())))])
    try:
        rows = read_history(path, format, MODEL, keys=keys(recorded)).ops.to_pylist()
    except MalformedError:
        return
    for row, was in zip(rows, expected(recorded, times=False), strict=False):
        assert row == was or row == {**was, "result": None, "ret": None, "outcome": "info", "error": None}


CALL = "{:process 0, :type :invoke, :f :read, :value nil"

MALFORMED = {
    "a completion with no call": (
        "{:process 3, :type :ok, :f :read, :value 1}", 1, 1, "process 3 ends :read, but has no open call",
    ),
    "two open calls": (
        f"{CALL}}}\n {CALL}}}", 2, 2, "process 0 has two open calls: this one, and the one at line 1",
    ),
    "another operation's end": (
        f"{CALL}}}\n{{:process 0, :type :ok, :f :write, :value 1}}", 2, 1,
        "process 0 ends :write, but called :read at line 1",
    ),
    "an index twice": (f"{CALL}, :index 7}}\n{{:process 0, :type :ok, :f :read :index 7}}", 2, 1, "does not follow"),
    "indexes here and there": (
        f"{CALL}, :index 7}}\n{{:process 0, :type :ok, :f :read}}", 2, 1, "some operations have an :index",
    ),
    "an unknown type": (
        "{:process 0, :type :oops, :f :read}", 1, 1, "`:oops`, which is none of :invoke, :ok, :fail, :info",
    ),
    "a type that is no keyword": ("{:process 0, :type 7, :f :read}", 1, 1, ":type is `7`, which is none of"),
    "no type": ("{:process 0, :f :read}", 1, 1, "this operation has no :type"),
    "no process": ("{:type :ok, :f :read}", 1, 1, "an entry without :process ends :read, but has no open call"),
    "no operation": ("{:type :ok, :process 0}", 1, 1, "this operation has no :f; cas-register has :f :read, :f :write"),
    "two open calls without a process": (
        "{:type :invoke :f :read}\n{:type :invoke :f :read}", 2, 1, "entries without :process have two open calls",
    ),
    "a process below zero": ("{:process -1, :type :ok, :f :read}", 1, 1, ":process is `-1`; a client is a number"),
    "a process too large": ("{:process 2147483648, :type :ok, :f :read}", 1, 1, ":process is `2147483648`"),
    "a process in words": ('{:process "a", :type :ok, :f :read}', 1, 1, "give each client a number, in all"),
    "a time that is none": (f"{CALL} :time 1.5}}", 1, 1, ":time is `1.5`; it is a whole number"),
    "a time beyond the last": (f"{CALL} :time {2**62}}}", 1, 1, ":time is `4611686018427387904`; it is a whole number"),
    "an index beyond 64 bits": (f"{CALL} :index {2**63}}}", 1, 1, ":index is "),
    "what a terminal would obey": (
        '{:process 0, :type :invoke, :f "\x1b[31m\n", :value nil}', 1, 1, r":\x1b[31m\n is no operation of cas-register"
    ),
    "an end on a key with a line end": (
        '{:process 1, :type :invoke, :f :read, :key "a\nb"} {:process 1, :type :ok, :f :read, :key "c\nd"}', 2, 5,
        r"this operation was called on key a\nb, and ends on key c\nd",
    ),
    "an operation without a name": ("{:process 0, :type :ok, :f 7}", 1, 1, ":f is `7`; it is a name"),
    "an operation of another model": (
        "{:process 0, :type :invoke, :f :txn}", 1, 1, ":txn is no operation of cas-register, which has read, write",
    ),
    "a compare-and-set of one": (
        "{:process 0, :type :invoke, :f :cas, :value 1}", 1, 1, ":cas takes the two values [from to], not `1`",
    ),
    "no map": ("7", 1, 1, "or a vector [process type f value], not `7`"),
    "tuples all of a sudden": (
        f"{CALL}}}\n{{:process 1, :type :invoke, :f :read, :value [1 nil]}}", 2, 1,
        "this operation has the tuple `[1 nil]`, unlike the first one, at line 1; if values have another meaning, use",
    ),
    "no tuple all of a sudden": (
        f"{{:process 1, :type :invoke, :f :read, :value [1 nil]}}\n{CALL}}}", 2, 1, "has `nil`, no tuple of key and",
    ),
    "an end on another key": (
        "{:process 1, :type :invoke, :f :read, :value [1 nil]}\n{:process 1, :type :ok, :f :read, :value [2 3]}", 2, 1,
        "this operation was called on key 1, and ends on key 2",
    ),
    "an end without its key": (
        "{:process 1, :type :invoke, :f :read, :value [1 nil]}\n{:process 1, :type :ok, :f :read, :value 3}", 2, 1,
        "has `3`, no tuple of key and value",
    ),
    "a :key here and there": (
        f'{CALL} :key "a"}}\n{{:process 1, :type :invoke, :f :read}}', 2, 1, "this operation has no :key, unlike",
    ),
    "two keys of one name": (
        f'{CALL} :key "7"}}\n{{:process 1, :type :invoke, :f :read, :key 7}}', 2, 1, 'the keys "7" and 7 would have',
    ),
    "an unclosed vector": (f"[{CALL}}}", 1, 1, "this vector is never closed: the file is cut short"),
    "a bad token": ("{:process 0x}", 1, 11, "`0x` is no EDN number"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_wrong_with_a_history_is_said_with_its_place(tmp_path: Path, name: str) -> None:
    text, line, column, reason = MALFORMED[name]
    path = written(tmp_path, text)
    with pytest.raises(MalformedError) as caught:
        read_history(path, ForeignFormat.EDN, MODEL)
    assert str(caught.value).startswith(f"{path}: line {line}, column {column}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("INFO  jepsen.util - 0 :oops :read nil\n", 1, 23, "`:oops`, which is none of :invoke"),
        ("\nINFO  jepsen.util - 0 :invoke :read\n", 2, 21, "is not process, :type, :f and value"),
        ("INFO  jepsen.util - 0 :in", 1, 26, "the last line has no line end, so the file may be cut short"),
        ("INFO  jepsen.util - 0 :invoke :write [1\n", 1, 38, "this `[` is never closed"),
        ("INFO  jepsen.util - 0\t:ok\t:read\t1\n", 1, 21, "process 0 ends :read, but has no open call"),
        ("INFO  jepsen.util - 99999999999 :ok :read 1\n", 1, 21, ":process is `99999999999`"),
        ("INFO  jepsen.util - 0 :invoke :write  3 4\n", 1, 41, "`4` stands after the value of an operation"),
        ("INFO  jepsen.util - 0 :invoke :write 3 :oops\n", 1, 40, "`:oops` stands after the value"),
        ("INFO  jepsen.util - 0 :ok :read so long\n", 1, 36, "`long` stands after the value of an operation"),
        ("\nINFO  jepsen.util - 12\n", 2, 7, "`jepsen.util - 12` is cut after the process"),
        (
            "jepsen.util - 0 :invoke :read nil INFO  jepsen.util - 1 :ok :read 3\n",
            1,
            41,
            "a second operation on one line",
        ),
        ("INFO  jepsen.util - 0\tINFO  jepsen.util - 1 :invoke :read nil\n", 1, 29, "a second operation on one line"),
        ("jepsen.util - :nemesis :info :start nilINFO  jepsen.util - 0 :ok :read 1\n", 1, 46, "a second operation"),
        ("\0\0INFO  jepsen.util - 0 :invoke :read nil\n", 1, 1, "a zero byte: the file is damaged"),
        ("INFO  jepsen.core - up\0\n", 1, 23, "a zero byte: the file is damaged"),
        ("INFO  jepsen.util - " + "9" * 5000 + " :ok :read 1\n", 1, 21, ":process is "),
        (
            "INFO  jepsen.util - \x1b[31m0 :ok :read 1\n",
            1,
            7,
            "is not process, :type, :f and value: the line is damaged",
        ),
        ("INFO  jepsen.util - 0\t\x1b[31m:ok\x1b[0m\t:read\t1\n", 1, 7, "is not process, :type, :f and value"),
        ("INFO  jepsen.util\x1b[0m - 0 :ok :read 1\n", 1, 7, "is not process, :type, :f and value"),
        ("INFO  jepsen.util - -1 :invoke :read nil\n", 1, 7, "is not process, :type, :f and value"),
        ("INFO  jepsen.util - 0.5 :fail :read nil\n", 1, 7, "is not process, :type, :f and value"),
        ("INFO  jepsen.util - 0, :info :read nil\n", 1, 7, "is not process, :type, :f and value"),
        ("INFO  jepsen.util 0:ok :read 1\n", 1, 7, "is not process, :type, :f and value"),
        ("jepsen.util - 0 :ok :read 1\tjepsen.util - \x1b[31m1 :ok :read 3\n", 1, 29, "a second operation on one line"),
    ],
)
def test_what_is_wrong_with_a_log_is_said_with_its_place(
    tmp_path: Path, text: str, line: int, column: int, reason: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(MalformedError) as caught:
        read_history(path, ForeignFormat.JEPSEN_LOG, MODEL)
    assert str(caught.value).startswith(f"{path}: line {line}, column {column}: ")
    assert reason in str(caught.value)


@settings(max_examples=some_of(60), deadline=None)
@given(recorded=histories(), data=st.data(), between=st.sampled_from(["", " ", "\t"]))
def test_a_lost_line_end_never_loses_an_operation(
    folder: Path, recorded: Recorded, data: st.DataObject, between: str
) -> None:
    """A line with two operations would lose one of them, if two loggers write one file or its lines are wrapped."""
    *lines, end = as_log(recorded, noise=False).split("\n")
    lost = data.draw(st.integers(1, len(lines)))
    text = "\n".join(lines[:lost]) + between + "\n".join([*lines[lost:], end])
    with pytest.raises(
        MalformedError, match=rf": line {lost}, column \d+: (a second operation|the last line has no line end)"
    ):
        read_history(written(folder, text), ForeignFormat.JEPSEN_LOG, MODEL, keys=keys(recorded))


def test_what_follows_the_value_of_a_completion_is_its_error(tmp_path: Path) -> None:
    ends = (
        ":ok :read 3",
        ":ok :read 3 :late",
        ":ok :read 3\ta word",
        ":fail :read nil a word",
        ":info :read nil :late",
    )
    lines = [f"INFO  jepsen.util - {number} " for number in range(len(ends))]
    text = "".join(f"{line}:invoke :read nil\n{line}{end}\n" for line, end in zip(lines, ends, strict=True))
    rows = read_history(written(tmp_path, text), ForeignFormat.JEPSEN_LOG, MODEL).ops.to_pylist()
    assert [row["result"] for row in rows] == ["3", "3", "3", None, None]
    assert [row["error"] for row in rows] == [None, "late", "a word", "a word", "late"]


def test_lines_of_the_same_logger_about_something_else_are_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "INFO  jepsen.util - 3 nodes are up\nINFO  jepsen.util - 0 :invoke :read nil\nINFO  jepsen.util - waiting\n"
        "\tat jepsen.util$retry.invoke(util.clj:3)\nINFO  jepsen.util -\n"
        "INFO  jepsen.util - 3 are :ok-ish :information\n"
        "at jepsen.util$retry {:type :fail}, jepsen.util/timeout {:type :info}\n",
    )
    foreign = read_history(path, ForeignFormat.JEPSEN_LOG, MODEL)
    assert (foreign.ops.num_rows, foreign.skipped) == (1, 6)


@pytest.mark.parametrize("after", ["", "- ", "0", ":nemesis", "0 :ok :read"])
def test_the_time_for_a_line_of_blanks_does_not_grow_with_the_square_of_its_length(tmp_path: Path, after: str) -> None:
    line = f"jepsen.util{' ' * 100_000}{after}{' ' * 100_000}x"
    path = written(tmp_path, f"INFO  jepsen.util - 0 :invoke :read nil\n{line}\n")
    begun = time.process_time()
    with contextlib.suppress(MalformedError):
        read_history(path, ForeignFormat.JEPSEN_LOG, MODEL)
    assert time.process_time() - begun < 5


@pytest.mark.slow
def test_the_time_for_an_endless_line_does_not_grow_with_the_square_of_its_length(tmp_path: Path) -> None:
    path = written(tmp_path, "a\n" + "b" * 300_000)
    begun = time.process_time()
    assert list(read_lines(path, lambda done: None, 1)) == [(1, "a", True), (2, "b" * 300_000, False)]
    assert time.process_time() - begun < 5


def test_an_ok_completion_may_leave_the_value_out_or_say_how_a_cas_went(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "".join(
            f"{{:process 0, :type :invoke, :f {f}, :value {called}}} {{:process 0, :type :ok, :f {f}, :value {ended}}}"
            for f, called, ended in (
                (":write", 1, "nil"), (":write", 1, 1), (":cas", "[1 2]", "nil"), (":cas", "[1 2]", "(1 2)"),
                (":cas", "[1 2]", "false"), (":cas", "[1 2]", "true"),
            )
        ),
    )  # fmt: skip
    rows = read_history(path, ForeignFormat.EDN, MODEL).ops.to_pylist()
    assert [row["result"] for row in rows] == [None, "1", None, "[1,2]", "false", "true"]


@pytest.mark.parametrize("format", ForeignFormat)
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, format: ForeignFormat) -> None:
    text = {
        ForeignFormat.EDN: f"{CALL}}}",
        ForeignFormat.JSON: '{"process": 0, "type": "invoke", "f": "read", "value": null}',
        ForeignFormat.HISTORY_TXT: "0\t:invoke\t:read\tnil\n",
        ForeignFormat.JEPSEN_LOG: "INFO  jepsen.util - 0 :invoke :read nil\n",
    }[format]
    with_mark, without = written(tmp_path, b"\xef\xbb\xbf" + text.encode(), "a"), written(tmp_path, text, "b")
    assert recognise_format(with_mark) is format
    assert read_history(with_mark, format, MODEL).ops.equals(read_history(without, format, MODEL).ops)


def test_not_utf8_is_reported_with_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, b"; \xc3\xa9\n {:a \xff}")
    for format in ForeignFormat:
        with pytest.raises(MalformedError, match="line 2, column 6: the byte 0xff is not UTF-8"):
            read_history(path, format, MODEL)
    with pytest.raises(MalformedError, match=r"line 1, column 3: the byte 0xc3 is not UTF-8.*cut short"):
        read_history(written(tmp_path, b"; \xc3"), ForeignFormat.EDN, MODEL)


def test_what_a_file_is_of_is_recognised_or_asked_for(tmp_path: Path) -> None:
    assert recognise_format(written(tmp_path, "anything", "history.edn")) is ForeignFormat.EDN
    assert recognise_format(written(tmp_path, "; a comment\n\n , #op{")) is ForeignFormat.EDN
    with pytest.raises(MalformedError, match="the file is empty"):
        recognise_format(written(tmp_path, ""))
    with pytest.raises(MalformedError, match="say which with --format=edn or --format=json or"):
        recognise_format(written(tmp_path, "index,process\n1,2\n"))
    log = gzip.compress(b"INFO  jepsen.util - 0 :invoke :read nil\n")
    assert recognise_format(written(tmp_path, log)) is ForeignFormat.JEPSEN_LOG
    assert recognise_format(written(tmp_path, log, "history.jsonl.gz")) is ForeignFormat.JSON
    with pytest.raises(MalformedError, match="the compressed file is damaged or cut short"):
        recognise_format(written(tmp_path, log[:-9]))
    assert recognise_format(written(tmp_path, '\n[ {"type" : "ok"}]')) is ForeignFormat.JSON
    assert recognise_format(written(tmp_path, '{"type" :ok}')) is ForeignFormat.EDN
    assert recognise_format(written(tmp_path, "[0 :invoke :read nil]")) is ForeignFormat.EDN
    assert recognise_format(written(tmp_path, "0\t:invoke\t:read\tnil\n")) is ForeignFormat.HISTORY_TXT


def test_a_pipe_is_not_looked_at_before_it_is_read(tmp_path: Path) -> None:
    """Recognition would consume the beginning of the history."""
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as file:
        file.write(f"{CALL}}}".encode())
        file.close()
        pipe = Path(f"/dev/fd/{reading}")
        with pytest.raises(MalformedError, match=r"no regular file, .* name the format with --format=edn"):
            recognise_format(pipe)
        assert read_history(pipe, ForeignFormat.EDN, MODEL).ops.num_rows == 1


def test_the_last_times_of_all_leave_room_for_each_other(tmp_path: Path) -> None:
    last = 2**62 - 1
    path = written(tmp_path, f"{CALL}, :time {last}}}\n{{:process 0, :type :ok, :f :read, :time {last}}}")
    (row,) = read_history(path, ForeignFormat.EDN, MODEL).ops.to_pylist()
    assert (row["call"], row["ret"]) == (last, last + 1)


def test_the_order_of_the_file_may_count_instead_of_times(tmp_path: Path) -> None:
    path = written(tmp_path, f"{CALL}, :time 7}}\n{{:process 0, :type :ok, :f :read, :time 6}}")
    (row,) = read_history(path, ForeignFormat.EDN, MODEL, order=EntryOrder.FILE).ops.to_pylist()
    assert (row["call"], row["ret"]) == (0, ENTRY_INTERVAL)


def test_tagged_tuples_and_keys_beside_the_value(tmp_path: Path) -> None:
    tagged = """{:process 0, :type :invoke, :f :cas, :value #jepsen.independent.Tuple[:k [1 2]]}
                {:process 0, :type :ok, :f :cas, :value #jepsen.independent.Tuple[:k [1 2]]}"""
    entry = tagged.replace("jepsen.independent.Tuple", "clojure.lang.MapEntry")
    record = tagged.replace("[:k [1 2]]", "{:key :k, :value [1 2]}")
    beside = (
        """{:process 0, :type :invoke, :f :cas, :key "k" :value [1 2]} {:process 0, :type :ok, :f :cas :value [1 2]}"""
    )
    for text in (tagged, entry, record, beside):
        (row,) = read_history(written(tmp_path, text), ForeignFormat.EDN, MODEL).ops.to_pylist()
        assert (row["key"], row["argument"], row["outcome"]) == ("k", "[1,2]", "ok")


def test_a_refused_cas_is_a_result_only_where_asked_for(tmp_path: Path) -> None:
    text = "".join(
        f"INFO  jepsen.util - {process} :invoke :cas [1 2]\nINFO  jepsen.util - {process} :fail :cas {said}\n"
        for process, said in enumerate(("[1 2]", ":timed-out", "[1 2] :timed-out"))
    )
    path = written(tmp_path, text)
    plain = read_history(path, ForeignFormat.JEPSEN_LOG, MODEL).ops.to_pylist()
    assert [(row["outcome"], row["result"]) for row in plain] == [("fail", None)] * 3
    refused = read_history(path, ForeignFormat.JEPSEN_LOG, MODEL, refusals=True).ops.to_pylist()
    assert [(row["outcome"], row["result"]) for row in refused] == [("ok", "false"), ("fail", None), ("fail", None)]


@pytest.mark.parametrize(
    ("model", "text", "reason"),
    [
        ("kv", "{:process 0 :type :invoke :f :put :value 7}", ":put takes a string; for numbers there is --model=reg"),
        ("kv", "{:process 0 :type :invoke :f :get} {:process 0 :type :ok :f :get :value 7}", "the result of :get is a"),
        ("set", "{:process 0 :type :invoke :f :read} {:process 0 :type :ok :f :read}", "is a vector, list or set, not"),
        ("mutex", "{:process 0 :type :invoke :f :lock}", ":lock is no operation of mutex, which has acquire, release"),
    ],
)
def test_values_must_be_those_of_the_model(tmp_path: Path, model: str, text: str, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        read_history(written(tmp_path, text), ForeignFormat.EDN, model)


@pytest.mark.parametrize(
    ("model", "results"),
    [("register", ["[1,2]", "[1,2]", '{"set":[1,2]}']), ("set", ["[1,2]", "[1,2]", "[1,2]"])],
)
def test_only_the_model_of_a_set_takes_a_vector_for_a_set(tmp_path: Path, model: str, results: list[str]) -> None:
    text = "".join(
        f"{{:process 0 :type :invoke :f :read}} {{:process 0 :type :ok :f :read :value {value}}}"
        for value in ("[1 2]", "(1 2)", "#{2 1}")
    )
    rows = read_history(written(tmp_path, text), ForeignFormat.EDN, model).ops.to_pylist()
    assert [row["result"] for row in rows] == results


@pytest.mark.parametrize("blank", [" ", ",", "\n", "\r"])
def test_a_file_of_blanks_is_rejected_at_once(tmp_path: Path, blank: str) -> None:
    """The time of the search for the beginning of JSON must not grow with the square of the number of blanks."""
    (tmp_path / "history").write_text(blank * 100_000 + "x")
    began = time.process_time()
    with pytest.raises(MalformedError, match="neither EDN or JSON"):
        recognise_format(tmp_path / "history")
    assert time.process_time() - began < 2


def test_a_client_that_is_named_by_a_keyword_is_not_taken_for_the_nemesis(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    fault = "{:process :chaos, :type :info, :f :kill, :value nil}\n"
    write = "{:process 0, :type :invoke, :f :write, :value 1}\n{:process 0, :type :ok, :f :write, :value 1}\n"
    path.write_text(fault + write)
    assert read_history(path, ForeignFormat.EDN, "register").ops.num_rows == 1
    read = "{:process :c2, :type :invoke, :f :read, :value nil}\n{:process :c2, :type :ok, :f :read, :value 7}\n"
    path.write_text(write + read)
    with pytest.raises(MalformedError, match=":process is `:c2`; a client is a number"):
        read_history(path, ForeignFormat.EDN, "register")
