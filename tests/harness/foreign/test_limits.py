"""Numbers of any size and form in EDN and in JSON, and files that unpack to more than a limit."""

from __future__ import annotations

import gzip
from itertools import product
from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.foreign import ForeignFormat, MalformedError, read_history, source

from helpers.workload_files import Event, done, edn

LARGE = 2**70


def as_json(events: list[Event]) -> str:
    return "".join(
        f'{{"process": {process}, "type": "{type}", "f": "{f}", "value": {value}, "time": {number}}}\n'
        for number, (process, type, f, value) in enumerate(events)
    )


def judged(path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], *options: str) -> tuple[int, str]:
    path.write_text(edn(events) if path.suffix == ".edn" else as_json(events))
    code = main(["check", str(path), *options])
    captured = capsys.readouterr()
    return int(code), captured.out + captured.err


EDN_CLASSES = (
    ("0", "-0", "0N"), ("0.0", "-0.0", "0e3"), ("0M", "0.00M", "-0.0M"), ("1", "1N", "0x1", "4/4"), ("1.0", "1e0"),
    ("1M", "1.0M"), ("##NaN",), ("##Inf", "1e999"), ('"a"',), (":a",), ("\\a",), ("a",), ("true",), ('"true"',),
    (str(LARGE), f"{LARGE}N"), ("1e20",), ("1e20M",), ("[1]", "(1)"), ("#{1}",),
)  # fmt: skip
JSON_CLASSES = (
    ("0", "-0"), ("0.0", "-0.0", "-1e-999"), ("1",), ("1.0", "1e0"), ("NaN",), ("Infinity", "1e999"), ('"a"',),
    ('":a"',), ("true",), ('"true"',), (str(LARGE),), ("1e20",), ("[1]",),
)  # fmt: skip
"""Notations of equal values. JSON has no other kinds of numbers, and its keywords are strings with a colon."""


@pytest.mark.parametrize(("suffix", "nil", "classes"), [("edn", "nil", EDN_CLASSES), ("json", "null", JSON_CLASSES)])
def test_equal_values_have_one_text_in_both_notations(
    tmp_path: Path, suffix: str, nil: str, classes: tuple[tuple[str, ...], ...]
) -> None:
    path = tmp_path / f"h.{suffix}"
    texts = {}
    for number, equal in enumerate(classes):
        for value in equal:
            events = done(0, "write", value)
            path.write_text(edn(events) if suffix == "edn" else as_json(events))
            (texts[number, value],) = read_history(path, ForeignFormat(suffix), "register").ops["argument"].to_pylist()
    for (one, value), (other, another) in product(texts, repeat=2):
        assert (texts[one, value] == texts[other, another]) == (one == other), (value, another)


@pytest.mark.parametrize("options", [["--model=register"], ["--workload=register"], ["--workload=rw-register"]])
@pytest.mark.parametrize("suffix", ["edn", "json"])
def test_zero_has_no_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str, options: list[str]) -> None:
    nil = {"edn": "nil", "json": "null"}[suffix]
    events = [*done(0, "write", "-0.0"), *done(1, "read", nil, "0.0")]
    if options == ["--workload=rw-register"]:
        verbs = {"edn": (":w", ":r", " "), "json": ('"w"', '"r"', ",")}[suffix]
        write, read, blank = verbs
        events = [
            *done(0, "txn", f"[[{write}{blank}1{blank}-0.0]]"),
            *done(1, "txn", f"[[{read}{blank}1{blank}{nil}]]", f"[[{read}{blank}1{blank}0.0]]"),
        ]
    assert judged(tmp_path / f"h.{suffix}", capsys, events, *options)[0] == 0


def adds(*amounts: int) -> list[Event]:
    return [event for amount in amounts for event in done(0, "add", str(amount))]


@pytest.mark.parametrize("linearizable", [[], ["--linearizable"]])
@pytest.mark.parametrize("workload", ["counter", "pn-counter"])
@pytest.mark.parametrize("amounts", [(LARGE, LARGE), (2**62,) * 4])
def test_sums_beyond_64_bits_are_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], amounts: tuple[int, ...], workload: str, linearizable: list[str]
) -> None:
    """A sum modulo 2^64 would accept a read of 0 after four adds of 2^62."""
    total = sum(amounts)
    for shown, right in ((total, 0), (total + 1, 1), (total % 2**64, 1)):
        events = [*adds(*amounts), *done(1, "read", "nil", str(shown))]
        code, said = judged(tmp_path / "h.edn", capsys, events, f"--workload={workload}", *linearizable)
        assert code == right, (shown, said)


def acquires(*permits: int) -> list[Event]:
    return [event for process, count in enumerate(permits) for event in done(process, "acquire", str(count))]


def test_permits_are_counted_without_overflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, most = tmp_path / "h.edn", 2**63 - 1
    assert judged(path, capsys, acquires(2**62, 2**62 - 1), f"--model=semaphore({most})")[0] == 0
    assert judged(path, capsys, acquires(2**62, 2**62), f"--model=semaphore({most})")[0] == 1
    code, said = judged(path, capsys, acquires(1), f"--model=semaphore({most + 1})")
    assert (code, f"the argument of semaphore is at most {most}, not {most + 1}" in said) == (64, True)


@pytest.mark.parametrize(
    ("workload", "events", "words"),
    [
        ("bank", done(0, "read", "nil", f"{{0 {LARGE}}}"), "operation 0: the balance of account 0 is "),
        ("bank", done(0, "transfer", f"{{:from 0, :to 1, :amount {LARGE}}}"), "operation 0: the amount is "),
        (
            "bank",
            [*done(0, "transfer", "{:from 0, :to 1, :amount 1}"), *done(0, "read", "nil", f"[{2**62} {2**62}]")],
            "the total of bank is 9223372036854775808",
        ),
        ("monotonic", done(0, "inc", "0", f"{{0 {LARGE}}}"), "operation 0: the value of 0 is "),
    ],
)
def test_numbers_that_the_checks_cannot_hold_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str, events: list[Event], words: str
) -> None:
    code, said = judged(tmp_path / "h.edn", capsys, events, f"--workload={workload}")
    assert code == 64
    assert words in said
    assert "which has more than 64 bits" in said


def test_a_bank_may_hold_more_than_64_bits_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, code in ((0, 0), (1, 1)):
        events = [
            *done(0, "read", "nil", f"[{2**62} {2**62}]"),
            *done(0, "transfer", "{:from 0, :to 1, :amount 5}"),
            *done(0, "read", "nil", f"[{2**62 - 5} {2**62 + 5 + more}]"),
        ]
        assert judged(tmp_path / "h.edn", capsys, events, "--workload=bank")[0] == code


@pytest.mark.parametrize("element", [LARGE, 7 * 10**18, -(2**63)])
def test_elements_of_any_size_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str], element: int) -> None:
    path = tmp_path / "h.edn"
    for shown, code in ((element, 0), (element + 1, 1)):
        appends = [
            *done(0, "txn", f"[[:append 1 {element}]]"),
            *done(0, "txn", "[[:r 1 nil]]", f"[[:r 1 [{shown}]]]"),
        ]
        assert judged(path, capsys, appends, "--workload=list-append")[0] == code
        sets = [*done(0, "add", str(element)), *done(0, "read", "nil", f"[{shown}]")]
        assert judged(path, capsys, sets, "--workload=set-full")[0] == code


def test_a_finding_names_a_negative_element_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [*done(0, "add", ":a"), *done(0, "add", str(-7 * 10**18)), *done(0, "read", "nil", "#{:a}")]
    _, said = judged(tmp_path / "h.edn", capsys, events, "--workload=set")
    assert f"{-7 * 10**18}" in said
    assert "-:a" not in said


def test_offsets_and_values_of_any_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for shown, code in ((LARGE, 0), (LARGE + 1, 1)):
        events = [
            *done(0, "send", f"[[:send 1 {LARGE}]]", f"[[:send 1 [{LARGE} {LARGE}]]]"),
            *done(0, "poll", "[[:poll]]", f"[[:poll {{1 [[{LARGE} {shown}]]}}]]"),
        ]
        assert judged(tmp_path / "h.edn", capsys, events, "--workload=kafka")[0] == code


def test_a_compressed_file_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.edn.gz"
    text = edn(done(0, "read", "nil")).encode() + b" " * 1000
    path.write_bytes(gzip.compress(text))
    for limit in (len(text), len(text) - 1):
        monkeypatch.setenv(source.LIMIT_VARIABLE, str(limit))
        if limit == len(text):
            assert read_history(path, ForeignFormat.EDN, "register").ops.num_rows == 1
        else:
            with pytest.raises(MalformedError, match=f"unpacks to more than {limit} bytes; .* {source.LIMIT_VARIABLE}"):
                read_history(path, ForeignFormat.EDN, "register")
    path.write_bytes(text)
    assert read_history(path, ForeignFormat.EDN, "register").ops.num_rows == 1
    path.write_bytes(gzip.compress(text))
    monkeypatch.setenv(source.LIMIT_VARIABLE, "much")
    with pytest.raises(MalformedError, match="is `much`; it is a number of bytes"):
        read_history(path, ForeignFormat.EDN, "register")


def test_the_limit_is_not_reached_by_usual_files() -> None:
    assert source.UNPACKED_LIMIT >= 2**32


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (ForeignFormat.EDN, '{:process 0, :error "' + "x" * 5000),
        (ForeignFormat.EDN, "{:process [" + "1 " * 2500),
        (ForeignFormat.JSON, '{"process": "' + "x" * 5000),
        (ForeignFormat.HISTORY_TXT, "0 :invoke :read " + "x" * 5000),
        (ForeignFormat.JEPSEN_LOG, "INFO  jepsen.util - 0 :invoke :read " + "x" * 5000),
    ],
)
def test_one_endless_operation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: ForeignFormat, text: str
) -> None:
    """It would fill the memory before its end is found."""
    monkeypatch.setattr(source, "LONGEST_VALUE", 2000)
    monkeypatch.setattr(source.read_pieces, "__defaults__", (500,))
    monkeypatch.setattr(source.read_lines, "__defaults__", (500,))
    (tmp_path / "h").write_text(text)
    with pytest.raises(MalformedError, match="line 1, column 1: this operation has more than 2000 characters"):
        read_history(tmp_path / "h", format, "register")


EMPTY_LINE = gzip.compress(b"\n", mtime=0)


@pytest.mark.parametrize(
    ("tail", "is_good"),
    [
        (b"", True),
        (bytes(512), True),  # padding to whole blocks, as on tapes
        (EMPTY_LINE, True),
        (bytes(7) + EMPTY_LINE, True),
        (b"garbage", False),
        (bytes(512) + b"garbage", False),
        (EMPTY_LINE[:-1], False),
        (EMPTY_LINE[:5], False),
    ],
)
def test_zeros_after_a_compressed_file_are_padding_and_all_else_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tail: bytes, is_good: bool
) -> None:
    """gzip(1) ignores zeros at the end, too, and takes several compressed files for one."""
    path = tmp_path / "h.edn.gz"
    path.write_bytes(gzip.compress(edn([*adds(1, 2), *done(1, "read", "nil", "3")]).encode()) + tail)
    code = int(main(["check", str(path), "--workload=counter"]))
    said = capsys.readouterr().err
    assert ("the compressed file is damaged or cut short" in said) is not is_good
    assert code == (0 if is_good else 64), said
