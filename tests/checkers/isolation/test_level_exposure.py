"""Exposure of isolation levels, by brute force: a read that is not exposed is legal whatever version it shows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assay.checkers.isolation.exposure import count_exposure
from assay.checkers.isolation.levels import LEVELS, Level, Rule
from assay.checkers.isolation.transactions import make_history
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.transactions.family import TRANSACTION_ANOMALIES
from assay.reports.coverage import AnomalyPolicy, CheckRow, CheckState, build_rows

from helpers.isolation_oracle import draw_history, satisfies, to_rows
from helpers.judging import judge
from helpers.log_histories import Book, write
from helpers.txn_histories import Store, Txn

HISTORIES = 20
"""Legal histories per level."""


def list_reads(txns: Sequence[Txn]) -> Iterator[tuple[int, int]]:
    """Yields transaction and position of each read of another transaction's version, or of the initial one."""
    for number, txn in enumerate(txns):
        own: set[str] = set()
        for place, (f, key, _) in enumerate(txn.micros):
            if f != "r":
                own.add(key)
            elif txn.outcome == "ok" and key not in own:
                yield number, place


def list_others(txns: Sequence[Txn], number: int, place: int) -> Iterator[list[Txn]]:
    """Yields the histories in which this read shows another version of the register, which others can have written."""
    f, key, value = txns[number].micros[place]
    shown = {(one[1], one[2]) for txn in txns if txn.outcome == "ok" for one in txn.micros if one[0] == "r"}
    versions: set[int | None] = {None}
    for other, txn in enumerate(txns):
        final = {micro[1]: micro[2] for micro in txn.micros if micro[0] == "w"}
        counts = txn.outcome == "ok" or (txn.outcome == "info" and any(
            (one[1], one[2]) in shown for one in txn.micros if one[0] == "w"))  # fmt: skip
        if other != number and counts and key in final:
            versions.add(final[key])
    for version in versions - {value}:
        micros = [*txns[number].micros]
        micros[place] = (f, key, version)
        yield [replace(txn, micros=micros) if txn is txns[number] else txn for txn in txns]


def is_plain(txns: list[Txn], level: Level) -> bool:
    """Returns whether the level allows the history, and each read shows a version."""
    return not make_history(to_rows(txns)).anomalies and satisfies(txns, level)


def draw_legal(level: Level) -> Iterator[list[Txn]]:
    rng = random.Random(f"{level.name}/exposure")
    for _ in range(HISTORIES):
        yield next(txns for _ in range(1000) if is_plain(txns := draw_history(rng, 3), level))


def test_a_read_that_is_not_exposed_is_legal_whatever_it_shows() -> None:
    total: Counter[str] = Counter()
    for level in LEVELS.values():
        for txns in draw_legal(level):
            counts = count_exposure(make_history(to_rows(txns)), level)
            reads = list(list_reads(txns))
            by_key = Counter(txns[number].micros[place][1] for number, place in reads)
            assert {key: claims for key, (claims, _) in counts.items()} == by_key
            contradicted: Counter[str] = Counter()
            for number, place in reads:
                others = list_others(txns, number, place)
                contradicted[txns[number].micros[place][1]] += any(not satisfies(one, level) for one in others)
            for key, (_, exposed) in counts.items():
                assert contradicted[key] <= exposed, (level, txns, key)
            total["claims"] += by_key.total()
            if level.rule is not Rule.READ_UNCOMMITTED:
                total["exposed"] += sum(exposed for _, exposed in counts.values())
                total["contradicted"] += contradicted.total()
    assert total["exposed"] // 3 < total["contradicted"] <= total["exposed"] < total["claims"], total


def judged(folder: Path, store: Store, contract: Contract, *, requires_exposure: bool = True) -> Judgement:
    return judge(write(folder / "history", store.rows), contract, requires_exposure=requires_exposure)


def blind_store() -> Store:
    """Each transaction reads or writes one register, so each read can be placed right after its write."""
    store = Store()
    for number in range(1, 6):
        store.add(f"wx{number}")
        store.add(f"rx={number}")
    return store


def open_store() -> Store:
    """The nearest neighbour: each read belongs to a transaction that also writes."""
    store = Store()
    for number in range(1, 6):
        store.add(*([f"rx={number - 1}"] if number > 1 else []), f"wx{number}")
        store.add(f"rx={number}")
    return store


PROMISED = forbid(*TRANSACTION_ANOMALIES)
REASON = (
    "level serializable: 5 reads were answered in committed transactions, none was open to contradiction by another "
    "transaction; let transactions read and write several keys that other transactions write"
)


def test_a_run_that_could_not_contradict_its_level_is_unknown(tmp_path: Path) -> None:
    contract = PROMISED.isolate("serializable")
    blind = judged(tmp_path / "blind", blind_store(), contract)
    assert (blind.verdict, blind.unknown) == (Verdict.UNKNOWN, (REASON,))
    neighbour = judged(tmp_path / "open", open_store(), contract)
    assert (neighbour.verdict, neighbour.unknown) == (Verdict.PASS, ())
    strict = judged(tmp_path / "strict", blind_store(), PROMISED.isolate("strict-serializable"))
    assert (strict.verdict, strict.unknown) == (Verdict.PASS, ())
    assert judged(tmp_path / "plain", blind_store(), PROMISED).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "contract",
    [
        PROMISED.isolate("strict-serializable"), forbid("G1a").isolate("strict-serializable"),
        PROMISED.tolerate("G-single").isolate("strict-serializable"),
    ],
)  # fmt: skip
def test_what_refutes_the_level_of_a_contract_fails_the_run(tmp_path: Path, contract: Contract) -> None:
    stale = open_store()
    stale.add("rx=2")
    found = judged(tmp_path / "stale", stale, contract)
    assert (found.verdict, found.anomalies, found.unknown) == (Verdict.FAIL, {"G-single-real-time": 1}, ())
    assert judged(tmp_path / "open", open_store(), contract).verdict is Verdict.PASS


def test_an_anomaly_that_the_contract_tolerates_fails_no_run(tmp_path: Path) -> None:
    stale = open_store()
    stale.add("rx=2")
    contracts = (
        PROMISED.tolerate("G-single-real-time").isolate("strict-serializable"),
        PROMISED.isolate("strict-serializable").tolerate("G-single-real-time"),
    )
    for number, contract in enumerate(contracts):
        found = judged(tmp_path / str(number), stale, contract)
        assert (found.verdict, found.anomalies) == (Verdict.PASS, {"G-single-real-time": 1})


def test_a_run_without_transactions_satisfies_no_level(tmp_path: Path) -> None:
    book = Book()
    for number in range(12):
        book.send([number], number, (10 * number, 10 * number + 1))
        book.poll(number, [(number, number)], number + 1, (10 * number + 2, 10 * number + 3))
    path = write(tmp_path / "history", book.rows)
    found = judge(path, forbid("lost-write").isolate("serializable"))
    more = {*found.unknown} - {*judge(path, forbid("lost-write")).unknown}
    assert more == {"the contract demands serializable, but the history has no transactions"}


def test_one_sentence_says_that_no_transaction_read(tmp_path: Path) -> None:
    store = Store()
    for number in range(1, 12):
        store.add(f"wx{number}")
    found = judged(tmp_path, store, PROMISED.isolate("snapshot-isolation"))
    assert found.verdict is Verdict.UNKNOWN
    assert [reason for reason in found.unknown if reason.startswith("level ")] == [
        "level snapshot-isolation: no transaction that committed read a version of another transaction; let "
        "transactions read and write several keys that other transactions write"
    ]
    assert not any(reason.startswith("G1c: ") for reason in found.unknown)


def test_a_file_of_another_tool_shows_only_the_numbers(tmp_path: Path) -> None:
    contract = Contract(minimum_operations=0).isolate("serializable")
    found = judged(tmp_path, blind_store(), contract, requires_exposure=False)
    assert (found.verdict, found.unknown) == (Verdict.PASS, ())
    (row,) = (one for one in found.examined if one.check == "level serializable")
    assert (row.rows, row.claims, row.exposed) == (10, 5, 0)
    assert row.note is not None
    assert row.note.startswith(
        "level serializable: one order of all transactions explains every read; an order of 10 transactions shows it, "
        "and was verified"
    )


def find_row(judgement: Judgement) -> CheckRow:
    return next(row for row in build_rows(judgement) if row.name.startswith("level "))


def test_the_page_shows_the_level_as_a_row(tmp_path: Path) -> None:
    contract = PROMISED.isolate("serializable")
    row = find_row(judged(tmp_path / "blind", blind_store(), contract))
    assert (row.policy, row.state) == (AnomalyPolicy.FORBIDDEN, CheckState.NOT_EXPOSED)
    assert row.meaning == "one order of all transactions explains every read"
    row = find_row(judged(tmp_path / "open", open_store(), contract))
    assert (row.state, row.claims, row.exposed) == (CheckState.CLEAR, 9, 4)
    torn = open_store()
    torn.add("rx=5", "wx6")
    torn.add("rx=5", "wx7")
    failed = judged(tmp_path / "torn", torn, contract)
    assert (failed.verdict, find_row(failed).state) == (Verdict.FAIL, CheckState.FOUND)
