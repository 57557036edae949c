"""Mutated files of every format: read or refused with one line, within the time of their size, and never misread."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from random import Random
from typing import Final

import pytest

from assay.harness.foreign import ForeignFormat, ForeignHistory, MalformedError, read_history

from helpers.independent_edn import require_balance

ROUNDS: Final = int(os.environ.get("ASSAY_FUZZED_FILES", "150"))
"""Mutated files per format."""
pytestmark = [pytest.mark.long] if ROUNDS > 1000 else []
"""Many files take minutes, and so need a longer time limit."""
LINES: Final = [
    (0, "invoke", "write", 1), (1, "invoke", "read", None), (0, "ok", "write", 1), (1, "ok", "read", 1),
    (2, "invoke", "cas", [1, 2]), (0, "invoke", "read", None), (2, "info", "cas", [1, 2]), (0, "ok", "read", 2),
]  # fmt: skip
TOKENS: Final = (
    "{", "}", "[", "]", "(", ")", "#{", '"', "\\", "\\u", "\\ud800", "##NaN", "#_", "^", "@", "~", "#object[", "#<",
    ">",
    "0x", "1/0", "1/3", "36rZ", "9" * 30, "-1", "1e999", ":", "::", "nil", "null", "true", ",", "\n", "\t", ":invoke",
    ":ok", ":info", '"ok"', ":process", ":type", ":time", "-", "\x00", "\u2028", "é", "\U0001f600", "#:a{", ";", "NaN",
)  # fmt: skip


def to_edn(value: object) -> str:
    if isinstance(value, list):
        return f"[{' '.join(map(to_edn, value))}]"
    return "nil" if value is None else str(value)


def as_edn() -> str:
    return "".join(
        f'{{:index {n}, :process {p}, :type :{kind}, :f :{f}, :value {to_edn(value)}, :time {n}, :error "x"}}\n'
        for n, (p, kind, f, value) in enumerate(LINES)
    )


def as_json() -> str:
    keys = ("process", "type", "f", "value")
    return json.dumps([{**dict(zip(keys, line, strict=True)), "time": n} for n, line in enumerate(LINES)])


LOGS: Final = [
    (0, "invoke", "subscribe", "[1 2]"), (0, "ok", "subscribe", "[1 2]"),
    (1, "invoke", "send", "[[:send 1 5]]"), (1, "ok", "send", "[[:send 1 [0 5]]]"),
    (0, "invoke", "txn", "[[:poll] [:send 2 6]]"), (0, "ok", "txn", "[[:poll {1 [[0 5]], 2 []}] [:send 2 [nil 6]]]"),
]  # fmt: skip
BANK: Final = [
    (0, "invoke", "read", "nil"), (0, "ok", "read", "{:a 5, :b 5}"),
    (1, "invoke", "transfer", "{:from :a, :to :b, :amount 2}"), (1, "info", "transfer", "#error {:cause \"x\"}"),
    (2, "invoke", "read", "nil"), (2, "ok", "read", "{:a 3, :b 7}"),
]  # fmt: skip
WHOLE: Final = {
    "edn": (ForeignFormat.EDN, as_edn()),
    "edn in a vector": (ForeignFormat.EDN, f"[{as_edn()}]"),
    "logs": (ForeignFormat.EDN, "".join(f"{{:process {p} :type :{k} :f :{f} :value {v}}}\n" for p, k, f, v in LOGS)),
    "bank": (ForeignFormat.EDN, "".join(f"{{:process {p} :type :{k} :f :{f} :value {v}}}\n" for p, k, f, v in BANK)),
    "vectors": (ForeignFormat.EDN, "".join(f"[{p} :{k} :{f} {to_edn(v)}]\n" for p, k, f, v in LINES)),
    "json": (ForeignFormat.JSON, as_json()),
    "json lines": (ForeignFormat.JSON, "\n".join(map(json.dumps, json.loads(as_json())))),
    "history.txt": (ForeignFormat.HISTORY_TXT, "".join(f"{p}\t:{k}\t:{f}\t{to_edn(v)}\n" for p, k, f, v in LINES)),
    "log": (
        ForeignFormat.JEPSEN_LOG,
        "".join(f"INFO  jepsen.util - {p}\t:{k}\t:{f}\t{to_edn(v)}\n" for p, k, f, v in LINES),
    ),
}


WORKLOADS: Final = {"logs": "kafka", "bank": "bank"}
"""The workloads of forms. All other forms are registers."""


def mutate(text: str, random: Random) -> str:
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(text) + 1)
        end = min(len(text), at + random.choice([0, 0, 1, 1, 5, 30]))
        match random.randrange(5):
            case 0:
                text = text[:at] + random.choice(TOKENS) + text[at:]
            case 1:
                text = text[:at] + text[end:]
            case 2:
                text = text[:at] + random.choice(TOKENS) + text[end:]
            case 3:
                text = text[:end] + text[at:end] + text[end:]
            case _:
                text = text[:at] if random.random() < 0.3 else text[:at] + random.choice(TOKENS) * 3 + text[at:]
    return text


def mutate_bytes(data: bytes, random: Random) -> bytes:
    at = random.randrange(1, len(data))
    match random.randrange(4):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data[:at] + random.randbytes(random.randint(1, 5)) + data[at:]
        case _:
            return data + data[at:]


def read(path: Path, format: ForeignFormat, text: str, kind: str = "cas-register") -> ForeignHistory | str:
    path.write_text(text, encoding="utf-8")
    try:
        return read_history(path, format, kind, is_workload=kind in WORKLOADS.values(), prefers_values=kind == "kafka")
    except MalformedError as error:
        return str(error)


def require_understood(format: ForeignFormat, text: str) -> None:
    """Fails for a text that was read, although another reader of its notation finds no values in it."""
    if format is ForeignFormat.EDN:
        require_balance(text)
    elif format is ForeignFormat.JSON:
        decoder, at, end = json.JSONDecoder(), 0, len(text.rstrip(" \t\r\n"))
        while at < end:
            at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n"))
            _, at = decoder.raw_decode(text, at)


@pytest.mark.slow
@pytest.mark.parametrize("form", WHOLE)
def test_a_mutated_file_is_read_or_refused_with_one_line(tmp_path: Path, form: str) -> None:
    format, whole = WHOLE[form]
    refused = 0
    for seed in range(ROUNDS):
        begun = time.process_time()
        text = mutate(whole, Random(f"{form} {seed}"))
        result = read(tmp_path / "h", format, text, WORKLOADS.get(form, "cas-register"))
        assert time.process_time() - begun < 5, f"seed {seed}"
        if isinstance(result, str):
            refused += 1
            assert result.startswith(f"{tmp_path / 'h'}: "), f"seed {seed}"
            assert result.isprintable(), f"seed {seed}: {result}"
            assert not any(word in result for word in ("Keyword(", "Map(", "Tagged(", "Unreadable(", "object at 0x"))
        else:
            require_understood(format, text)
    print(f"{form}: {ROUNDS} mutated files, {refused} refused")
    assert ROUNDS < 50 or 0 < refused < ROUNDS


def test_a_mutated_compressed_file_is_read_as_its_text_or_refused_with_one_line(tmp_path: Path) -> None:
    """The text is mutated in every other file, the compressed bytes in the others. Gzip's checksum refuses these."""
    format, whole = WHOLE["edn"]
    base = read(tmp_path / "h", format, whole)
    assert not isinstance(base, str)
    path = tmp_path / "h.edn.gz"
    refused = 0
    for seed in range(ROUNDS):
        random = Random(f"gz {seed}")
        begun = time.process_time()
        text = mutate(whole, random) if seed % 2 else whole
        data = gzip.compress(text.encode(), mtime=0)
        path.write_bytes(data if seed % 2 else mutate_bytes(data, random))
        try:
            result: ForeignHistory | str = read_history(path, format, "cas-register")
        except MalformedError as error:
            result = str(error)
        if isinstance(result, str):
            refused += 1
            assert result.startswith(f"{path}: "), f"seed {seed}"
            assert result.isprintable(), f"seed {seed}: {result}"
        else:
            require_understood(format, text)
            assert seed % 2 or result.ops.equals(base.ops), f"seed {seed}"
        assert time.process_time() - begun < 5, f"seed {seed}"
    print(f".gz: {ROUNDS} mutated files, {refused} refused")
    assert ROUNDS < 50 or 0 < refused < ROUNDS


@pytest.mark.parametrize("form", [form for form in WHOLE if form not in WORKLOADS])
def test_each_line_that_is_removed_or_repeated_changes_the_operations(tmp_path: Path, form: str) -> None:
    """No line is skipped unnoticed. Without the ``:info`` of a call, its outcome is unknown all the same."""
    format, whole = WHOLE[form]
    base = read(tmp_path / "h", format, whole)
    assert not isinstance(base, str)
    assert base.ops.num_rows == 4
    if "\n" in whole.strip():
        lines = whole.splitlines(keepends=True)
        for number in (number for number, line in enumerate(lines) if "info" not in line):
            for changed in (lines[:number] + lines[number + 1 :], lines[: number + 1] + lines[number:]):
                result = read(tmp_path / "h", format, "".join(changed))
                assert isinstance(result, str) or not result.ops.equals(base.ops), (number, changed)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (ForeignFormat.EDN, "[" * 100_000),
        (ForeignFormat.EDN, "{:a " * 100_000),
        (ForeignFormat.EDN, "#_" * 100_000),
        (ForeignFormat.EDN, "^a " * 100_000),
        (ForeignFormat.EDN, "#<" * 100_000),
        (ForeignFormat.EDN, '"' + "\\" * 200_001),
        (ForeignFormat.EDN, "@" * 200_000),
        (ForeignFormat.EDN, "{:error [" + "{1} " * 50_000 + "]}"),
        (ForeignFormat.EDN, "9" * 500_000),
        (ForeignFormat.JSON, "[" * 100_000),
        (ForeignFormat.JSON, '{"a":' * 100_000),
        (ForeignFormat.JSON, '"' + "\\" * 200_001),
        (ForeignFormat.JSON, '{"process": ' + "9" * 500_000 + "}"),
        (ForeignFormat.JSON, "[" + " " * 500_000),
        (ForeignFormat.HISTORY_TXT, "0 " * 200_000 + "\n"),
        (ForeignFormat.HISTORY_TXT, "0\t:invoke\t:read\tnil" + " " * 200_000 + "x\n"),
    ],
)
def test_a_hostile_file_is_refused_in_linear_time(tmp_path: Path, format: ForeignFormat, text: str) -> None:
    begun = time.process_time()
    assert isinstance(read(tmp_path / "h", format, text), str)
    assert time.process_time() - begun < 5
