"""Small histories in every form that people have, each with the right answer; and answers that contradict calls."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.checkers.judging.verdict import Judgement
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.foreign import (
    MODELS,
    EntryOrder,
    ForeignFormat,
    ForeignHistory,
    KeyMode,
    MalformedError,
    read_history,
    recognise_format,
    separate_processes,
)
from assay.harness.foreign.answers import allow_micros
from assay.harness.foreign.edn import parse_first
from assay.harness.foreign.source import TextPosition

Line = tuple[int, str, str, Any]
"""Process, type, f and value, with None for nil and lists for vectors."""


def register(writes: int = 3) -> list[Line]:
    """Each value is written, and then read by another process."""
    return [
        line
        for value in range(writes)
        for line in (
            (0, "invoke", "write", value), (0, "ok", "write", value), (1, "invoke", "read", None),
            (1, "ok", "read", value),
        )
    ]  # fmt: skip


def transactions(count: int = 3) -> list[Line]:
    """Each transaction appends to one list, and reads it."""
    return [
        line
        for number in range(1, count + 1)
        for line in (
            (number % 2, "invoke", "txn", [[":append", 5, number], [":r", 5, None]]),
            (number % 2, "ok", "txn", [[":append", 5, number], [":r", 5, list(range(1, number + 1))]]),
        )
    ]


def to_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(map(to_text, value))}]"
    return "nil" if value is None else str(value)


def maps(lines: list[Line], **more: str) -> str:
    """EDN, a map for each line. ``more``: fields of the last line."""
    texts = [f":process {p}, :type :{kind}, :f :{f}, :value {to_text(value)}" for p, kind, f, value in lines]
    texts[-1] += "".join(f", :{name} {text}" for name, text in more.items())
    return "".join(f"{{:index {index}, {text}}}\n" for index, text in enumerate(texts))


def plain(value: Any) -> Any:
    """Returns a value as JSON has it: without colons."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.lstrip(":") if isinstance(value, str) else value


def objects(lines: list[Line]) -> list[dict[str, Any]]:
    return [
        {"index": index, "type": kind, "f": f, "process": process, "value": plain(value)}
        for index, (process, kind, f, value) in enumerate(lines)
    ]


def vectors(lines: list[Line]) -> str:
    return "".join(f"[{process} :{kind} :{f} {to_text(value)}]\n" for process, kind, f, value in lines)


def with_colons(one: dict[str, Any]) -> dict[str, Any]:
    """Returns an object as some converters write it."""
    return {f":{name}": f":{value}" if name in ("type", "f") else value for name, value in one.items()}


UNKNOWN_READ: list[Line] = [(3, "invoke", "read", None), (3, "info", "read", None)]
PRINTED = {
    "an object": '#object[java.net.Socket 0x5f2a3b1c "Socket[addr=n1/10.0.0.1]"]',
    "an old object": "#<SocketTimeoutException java.net.SocketTimeoutException: Read timed out>",
    "an exception": '#error {:cause "x" :via [{:type E :at [a.b$c invoke "f.clj" 3]}] :trace [[a <init> "T.java" 1]]}',
    "a record": '#jepsen.client.Node{:name "n1"}',
    "not a number": "##NaN",
    "infinite": "[##Inf ##-Inf]",
    "a ratio": "1/3",
    "hexadecimal": "0x10f3",
    "octal": "[017 36rZZ 2r101]",
    "characters": r"[\a \newline \o101]",
    "metadata": "^{:line 3} [1]",
    "a map with a namespace": "#:jepsen{:a 1}",
    "discarded": "[1 #_ #<x> 2]",
    "a set": "#{1 #{2}}",
    "a regular expression": '#"a[b"',
    "an odd map": "{:a}",
    "no token at all": "~@x%^&*",
}


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, dict[str, int]]:
    main(["check", *arguments, "--json"])
    judgement = msgspec.json.decode(capsys.readouterr().out, type=Judgement)
    return judgement.verdict.value, judgement.anomalies


def test_no_value_that_clojure_prints_rejects_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.edn"
    path.write_text(
        "".join(
            maps([*register(1), *UNKNOWN_READ], error=text, exception=text)
            .replace(":index", ":was")
            .replace(":process ", f":process {10 * number}")
            .replace(":value 0", f":value {number}")
            for number, text in enumerate(PRINTED.values())
        )
    )
    assert judged(capsys, str(path), "--model=register") == ("pass", {})


FORMS: dict[str, tuple[str, Callable[[list[Line]], str]]] = {
    "vectors": ("h.edn", vectors),
    "vectors in a vector": ("h", lambda lines: f" [ {vectors(lines)} ]"),
    "history.txt": ("history.txt", lambda lines: "".join(f"{p}\t:{k}\t:{f}\t{to_text(v)}\n" for p, k, f, v in lines)),
    "an array": ("h", lambda lines: json.dumps(objects(lines), indent=2)),
    "lines of JSON": ("h.jsonl", lambda lines: "".join(json.dumps(one) + "\n" for one in objects(lines))),
    "vectors in JSON": ("h.json", lambda lines: json.dumps([list(map(plain, line)) for line in lines])),
    "JSON with colons": ("h", lambda lines: json.dumps(list(map(with_colons, objects(lines))))),
    "without process": ("h.edn", lambda lines: maps(lines).replace(":process", ":worker")),
    "without index": ("h.edn", lambda lines: maps(lines).replace(":index", ":was")),
    "unknown times": ("h.edn", lambda lines: maps(lines).replace(":index", ":time -1, :index")),
    "names as text": ("h.edn", lambda lines: maps(lines).replace(":f :txn", ':f "txn"')),
}


def read(path: Path, model: str) -> ForeignHistory:
    return read_history(path, recognise_format(path), model, is_workload=model not in MODELS, keys=KeyMode.NONE)


def _to_text(cell: str) -> str:
    """Replaces keywords by strings."""
    return re.sub(r'{"keyword":("\w+")}', r"\1", cell)


@pytest.mark.parametrize(("lines", "model"), [(register(), "register"), (transactions(), "list-append")])
def test_each_form_is_read_as_the_same_operations(tmp_path: Path, lines: list[Line], model: str) -> None:
    (tmp_path / "base").write_text(maps(lines))
    base = read(tmp_path / "base", model).ops
    for form, (name, write) in FORMS.items():
        for compressed in (False, True):
            path = tmp_path / (f"{name}.gz" if compressed else name)
            path.write_bytes(gzip.compress(write(lines).encode()) if compressed else write(lines).encode())
            ops = read(path, model).ops
            has_text = "JSON" in form or form == "an array"
            for column in ("f", "key", "argument", "result", "outcome", "call", "ret"):
                wanted = base[column].to_pylist()
                if has_text:
                    wanted = [_to_text(one) if isinstance(one, str) else one for one in wanted]
                assert ops[column].to_pylist() == wanted, (form, column)
            if form != "without process":
                assert ops["process"].to_pylist() == base["process"].to_pylist()


def test_json_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.json"
    path.write_text(json.dumps(objects(transactions())))
    assert judged(capsys, str(path), "--workload=list-append") == ("pass", {})
    wrong = [*transactions()[:-1], (1, "ok", "txn", [["append", 5, 3], ["r", 5, [1, 3]]])]
    path.write_text(json.dumps(objects(wrong)))
    assert judged(capsys, str(path), "--workload=list-append")[0] == "fail"


def test_a_history_without_f_needs_a_workload_with_one_operation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(maps(transactions()).replace(":f :txn, ", ""))
    assert judged(capsys, str(path), "--workload=list-append") == ("pass", {})
    assert main(["check", str(path), "--model=register"]) == ExitCode.USAGE
    assert "this operation has no :f; register has :f :read, :f :write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "contradicts"),
    [
        ("[[:append 7 6] [:r 8 [1]]]", False),
        ("[[:append 7 6] [:r 8 nil]]", False),
        ("[[:append 7 6] [:append 8 5]]", True),
        ("[[:append 7 66] [:r 8 nil]]", True),
        ("[[:append 7 6] [:r 9 nil]]", True),
        ("[[:append 7 6]]", True),
        ("[[:append 7 6] [:r 8 nil] [:r 9 nil]]", True),
        ("[]", True),
        ("nil", True),
        (":ok", True),
        ("[[:append 7 6] [:r 8]]", True),
    ],
)
def test_an_answer_may_fill_in_its_call_but_not_change_it(tmp_path: Path, answer: str, contradicts: bool) -> None:
    path = tmp_path / "h.edn"
    path.write_text(f"[0 :invoke :txn [[:append 7 6] [:r 8 nil]]] [0 :ok :txn {answer}]")
    found = read(path, "list-append")
    assert [(one.called, one.answered) for one in found.answers] == (
        [("[[:append 7 6] [:r 8 nil]]", answer)] if contradicts else []
    )
    assert found.ops["outcome"].to_pylist() == ["info" if contradicts else "ok"]


@pytest.mark.parametrize("workload", ["list-append", "kafka"])
def test_nil_repeats_a_transaction_that_only_writes(tmp_path: Path, workload: str) -> None:
    path, micro = tmp_path / "h.edn", "[:send 7 6]" if workload == "kafka" else "[:append 7 6]"
    path.write_text(f"[0 :invoke :txn [{micro}]] [0 :ok :txn nil]")
    found = read(path, workload)
    assert not found.answers
    assert found.ops["result"].to_pylist() == found.ops["argument"].to_pylist()


def test_an_unreadable_answer_to_a_write_rejects_no_file(tmp_path: Path) -> None:
    """No check needs it: any answer of another type than the call's means success."""
    path = tmp_path / "h.edn"
    path.write_text("[0 :invoke :write 6] [0 :ok :write #<Result ok>] [0 :invoke :cas [6 7]] [0 :ok :cas #<Result ok>]")
    found = read_history(path, ForeignFormat.EDN, "cas-register", keys=KeyMode.NONE)
    assert found.ops["outcome"].to_pylist() == ["ok", "ok"]
    path.write_text("[0 :invoke :read nil] [0 :ok :read #<Result 6>]")
    with pytest.raises(MalformedError, match="the result of :read must be readable"):
        read_history(path, ForeignFormat.EDN, "cas-register", keys=KeyMode.NONE)


def test_a_contradictory_answer_is_an_anomaly_and_accuses_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The writes of its call may have taken effect: process 1 reads one of them, and process 0 goes on."""
    path = tmp_path / "h.edn"
    path.write_text("""
        [0 :invoke :txn [[:append 7 6] [:append 8 1] [:r 9 nil]]]  [0 :ok :txn [[:append 7 6]]]
        [1 :invoke :txn [[:r 8 nil]]]  [1 :ok :txn [[:r 8 [1]]]]
        [0 :invoke :txn [[:r 7 nil]]]  [0 :ok :txn [[:r 7 [6]]]]
        """)
    assert main(["check", str(path), "--workload=list-append"]) == ExitCode.FAIL
    out = capsys.readouterr().out
    assert "called txn with [[:append 7 6] [:append 8 1] [:r 9 nil]], and was answered [[:append 7 6]];" in out
    assert "forbidden: contradictory-answer 1, in 3 operations (2 ok, 1 unknown)" in out


@pytest.mark.parametrize(
    ("f", "called", "answered", "contradicts"),
    [
        ("write", "6", "66", True), ("write", "6", "6", False), ("write", "6", "nil", False),
        ("write", "6", ":ok", False), ("write", "6", "true", False), ("write", "6", "{:version 3}", False),
        ("write", "nil", "6", True), ("cas", "[6 7]", "[6 8]", True), ("cas", "[6 7]", "false", False),
        ("cas", "[6 7]", "(6 7)", False),
    ],
)  # fmt: skip
def test_an_answer_of_a_register_may_leave_its_value_out_but_not_change_it(
    tmp_path: Path, f: str, called: str, answered: str, contradicts: bool
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(f"[0 :invoke :{f} {called}] [0 :ok :{f} {answered}]")
    found = read_history(path, ForeignFormat.EDN, "cas-register", keys=KeyMode.NONE)
    assert len(found.answers) == contradicts


def test_micro_operations_of_a_log_may_be_answered_with_offsets() -> None:
    """``[:send k v]`` and ``[:poll]``, as in Jepsen's workload of Kafka."""
    for called, answered, allowed in (
        ("[[:send 1 5]]", "[[:send 1 [0 5]]]", True), ("[[:send 1 5]]", "[[:send 1 5]]", True),
        ("[[:send 1 5]]", "[[:send 1 [nil 5]]]", True), ("[[:send 1 5]]", "[[:send 1 [0 6]]]", False),
        ("[[:send 1 5]]", "[[:send 2 [0 5]]]", False), ("[[:poll]]", "[[:poll {1 [[0 5]]}]]", True),
        ("[[:poll]]", "[[:send 1 5]]", False), ("[[:poll]]", "[]", False),
    ):  # fmt: skip
        one, other = (parse_first(Path("h"), text, TextPosition(1, 1))[0] for text in (called, answered))
        assert allow_micros(one, other) == allowed, (called, answered)


def test_several_files_are_judged_in_one_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, cut = (tmp_path / f"{name}.edn" for name in ("good", "bad", "cut"))
    good.write_text(maps(register()))
    bad.write_text(maps([*register(), (1, "invoke", "read", None), (1, "ok", "read", 0)]))
    cut.write_text("[" + maps(register()))
    assert main(["check", str(good), str(cut), "--model=register"]) == ExitCode.USAGE
    assert capsys.readouterr().out.splitlines() == [
        f"pass     {good}  6 operations (6 ok), 6 effects",
        f"error    {cut}  {cut}: line 1, column 1: this vector is never closed: the file is cut short",
        f"2 histories: 1 error, 1 pass; for the details of one: assay check {cut} --model=register",
    ]
    assert main(["check", str(good), str(bad), str(cut), "--model=register", "--json"]) == ExitCode.FAIL
    verdicts = [json.loads(line).get("judgement", {}).get("verdict") for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["pass", "fail", None]
    assert main(["check", str(good), str(bad)]) == ExitCode.USAGE
    assert "are those of several workloads: name one with --workload=" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["check", str(good), str(tmp_path / "empty"), "--model=register"]) == ExitCode.USAGE
    assert "judge files and runs in separate calls" in capsys.readouterr().err


def timed(*entries: tuple[int, str, str, str, int]) -> str:
    return "".join(
        f"{{:process {process}, :type :{kind}, :f :{f}, :value {value}, :time {time}}}\n"
        for process, kind, f, value, time in entries
    )


RACE = timed(
    (0, "invoke", "write", "1", 5), (1, "invoke", "read", "nil", 4), (0, "ok", "write", "1", 7),
    (1, "ok", "read", "1", 6),
)  # fmt: skip
"""Two threads took their times before they wrote their lines."""
TWO_RECORDERS = timed(
    (0, "invoke", "write", "1", 5), (0, "ok", "write", "1", 7), (1, "invoke", "read", "nil", 1),
    (1, "ok", "read", "nil", 2),
)  # fmt: skip
"""The lines of process 1 were appended to those of process 0, though the read came first."""


@pytest.mark.parametrize(
    ("text", "note", "real"),
    [
        (RACE, "time goes backwards 2 times, first at line 2, so the order of the file counts", True),
        (TWO_RECORDERS, "time goes backwards at line 3, and the lines may be of several recorders", False),
        # A clock was set back between two operations of one process.
        (
            timed((0, "invoke", "read", "nil", 5), (0, "ok", "read", "1", 7), (0, "invoke", "read", "nil", 1)),
            "several",
            False,
        ),
        (TWO_RECORDERS.replace(":process 1", ":process 0"), "several recorders", False),
        (
            RACE.replace(", :time 4", "").replace(":time 6", ":time 8"),
            "some operations have no :time, so the order of the file counts",
            True,
        ),
        (re.sub(r":time \d", ":time -1", RACE), "", True),
        (RACE.replace(":time 5", ":time 3").replace(":time 7", ":time 5"), "", True),
    ],
)
def test_an_order_of_real_time_needs_one_recorder(tmp_path: Path, text: str, note: str, real: bool) -> None:
    path = tmp_path / "h.edn"
    path.write_text(text)
    claim = read(path, "register").order
    assert (claim.is_real_time, bool(claim.note)) == (real, bool(note))
    assert note in claim.note
    numbered = "".join(line.replace("{", f"{{:index {n}, ", 1) for n, line in enumerate(text.splitlines(keepends=True)))
    path.write_text(numbered)
    one_process = ":process 1" not in text
    assert read(path, "register").order.is_real_time == (real or one_process)


def test_no_order_is_claimed_for_lines_of_several_recorders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(TWO_RECORDERS)
    assert main(["check", str(path), "--model=register"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert f"{path}: line 3, column 1: time goes backwards, and the lines may be of several recorders" in error
    assert "use --order=file" in error
    assert main(["check", str(path), "--model=register", "--order=file"]) == ExitCode.FAIL
    by_time = read_history(path, ForeignFormat.EDN, "register", order=EntryOrder.TIME).ops
    assert (by_time["call"].to_pylist(), by_time["ret"].to_pylist()) == ([5, 1], [7, 2])
    capsys.readouterr()
    txns = TWO_RECORDERS.replace(":write, :value 1", ":txn, :value [[:w 1 1]]")
    path.write_text(txns.replace(":read, :value nil, :time 1", ":txn, :value [[:r 1 nil]], :time 1")
                    .replace(":read, :value nil", ":txn, :value [[:r 1 1]]"))  # fmt: skip
    assert main(["check", str(path), "--workload=rw-register"]) == ExitCode.PASS
    assert "no order of real time is claimed" in capsys.readouterr().out
    assert main(["check", str(path), "--workload=rw-register", "--level=strict-serializable"]) == ExitCode.USAGE
    assert "--level needs" in capsys.readouterr().err


def test_a_process_that_goes_on_after_info_keeps_both_operations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The write of unknown outcome takes effect after the next operation of its process."""
    path = tmp_path / "h.edn"
    path.write_text("""
        [0 :invoke :write 1] [0 :ok :write 1] [0 :invoke :write 2] [0 :info :write 2] [0 :invoke :read nil]
        [0 :ok :read 1] [0 :invoke :read nil] [0 :ok :read 2]
        """)
    assert main(["check", str(path), "--model=register"]) == ExitCode.PASS
    assert "2 operations came after one of unknown outcome in the same process" in capsys.readouterr().out
    ops = read(path, "register").ops
    assert ops["process"].to_pylist() == [0] * 4
    assert separate_processes(ops)["process"].to_pylist() == [0, 0, 1, 1]


def test_elements_of_a_list_may_be_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    good = """
        [0 :invoke :txn [[:append :x "a"] [:append :y 7]]] [0 :ok :txn [[:append :x "a"] [:append :y 7]]]
        [1 :invoke :txn [[:append :x :b] [:r :x nil]]] [1 :ok :txn [[:append :x :b] [:r :x ["a" :b]]]]
        """
    path.write_text(good.replace('["a" :b]', '["a" "other" :b]'))
    assert main(["check", str(path), "--workload=list-append"]) == ExitCode.FAIL
    assert (
        'garbage-read: Transaction 2 of process 1 read "other" of x, which no transaction wrote.'
        in capsys.readouterr().out
    )
