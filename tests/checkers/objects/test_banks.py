"""Banks: each anomaly and its nearest neighbour, loops as the oracle of the sums, and right banks at random."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.objects.banks import BANK_ANOMALIES
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main

from helpers.bank_histories import Bank, at_random
from helpers.judging import judge
from helpers.log_histories import Row, write

BANK = forbid(*BANK_ANOMALIES)


def judged(folder: Path, bank: Bank, contract: Contract = BANK) -> Judgement:
    return judge(write(folder, bank.rows), contract)


def found(folder: Path, bank: Bank) -> dict[str, int]:
    return dict(judged(folder, bank).anomalies)


MOST = 2**63 - 1
WRONG = {
    "more than 64 bits have room for": (
        Bank(10, 10).read((MOST, MOST), (5, 6)),
        {"bank-total": 1, "bank-unaccounted": 2},
    ),
    "less than all that 64 bits have no room for": (
        Bank(MOST, MOST).transfer(0, 1, MOST, (2, 3)).transfer(1, 0, MOST, (4, 5)).read((MOST, MOST - 1), (6, 7)),
        {"bank-total": 1, "bank-unaccounted": 1},
    ),
    "more than there is": (Bank(10, 10).read((10, 11), (5, 6)), {"bank-total": 1, "bank-unaccounted": 1}),
    "more than the whole": (Bank(10, 10, split=False).read((10, 11), (5, 6)), {"bank-total": 1}),
    "an account that is not shown": (Bank(10, 10).read((10,), (5, 6)), {"bank-total": 1}),
    "no account at all": (Bank(10, 10).read_nothing((5, 6)), {"bank-total": 1}),
    "no account, though a total was there": (Bank(10, split=False).read_nothing((5, 6)), {"bank-total": 1}),
    "accounts without balances": (Bank(10, 10).read((None, None), (5, 6)), {"bank-total": 1}),
    "an empty account without a balance": (Bank(10, 0).read((10, None), (5, 6)), {"bank-total": 1}),
    "half of a transfer": (
        Bank(10, 10).transfer(0, 1, 4, (5, 9)).read((6, 10), (6, 7)),
        {"bank-total": 1},
    ),
    "less than nothing": (
        Bank(3, 10).transfer(0, 1, 4, (5, 9)).read((-1, 14), (6, 7)),
        {"bank-negative": 1},
    ),
    "both halves of a transfer that was acknowledged": (
        Bank(10, 10).transfer(0, 1, 4, (2, 3)).read((10, 10), (5, 6)),
        {"bank-unaccounted": 2},
    ),
    "a transfer that failed": (
        Bank(10, 10).transfer(0, 1, 4, (2, 3), "fail").read((6, 14), (5, 6)),
        {"bank-unaccounted": 2},
    ),
    "a transfer that was called later": (
        Bank(10, 10).read((6, 14), (2, 3)).transfer(0, 1, 4, (4, 5)),
        {"bank-unaccounted": 2},
    ),
}
RIGHT = {
    "all that 64 bits have no room for": (
        Bank(MOST, MOST).transfer(0, 1, MOST, (2, 3)).transfer(1, 0, MOST, (4, 5)).read((MOST, MOST), (6, 7))
    ),
    "more than 64 bits have room for, moved by no one knows whom": (
        Bank(0, MOST)
        .transfer(1, 0, MOST, (2, None), "info")
        .transfer(1, 0, MOST, (3, None), "info")
        .read((MOST, 0), (6, 7))
    ),
    "no account before all were opened": Bank(10, 10, opened_in=(0, 5)).read_nothing((4, 6)).read((10, 10), (7, 8)),
    "no account in a bank that no one opened": Bank(10, 10, outcome="fail").read_nothing((5, 6)),
    "no account if the opening is unknown": Bank(10, 10, outcome="info").read_nothing((5, 6)),
    "nothing moved": Bank(10, 10).read((10, 10), (5, 6)),
    "a transfer that overlaps, before": Bank(10, 10).transfer(0, 1, 4, (5, 9)).read((10, 10), (6, 7)),
    "and after": Bank(10, 10).transfer(0, 1, 4, (5, 9)).read((6, 14), (6, 7)),
    "one that is called before the read returns": Bank(10, 10).read((6, 14), (2, 5)).transfer(0, 1, 4, (4, 6)),
    "one of which no one knows, done": Bank(10, 10).transfer(0, 1, 4, (2, None), "info").read((6, 14), (50, 60)),
    "and not done": Bank(10, 10).transfer(0, 1, 4, (2, None), "info").read((10, 10), (50, 60)),
    "a negative amount": Bank(10, 10).transfer(0, 1, -4, (2, 3)).read((14, 6), (5, 6)),
    "a negative amount of which no one knows": Bank(10, 10).transfer(0, 1, -4, (2, None), "info").read((14, 6), (5, 6)),
    "all of an account": Bank(4, 10).transfer(0, 1, 4, (2, 3)).read((0, 14), (5, 6)),
    "a bank of which only the whole is known": Bank(10, 10, split=False).read((0, 20), (5, 6)),
    "a read while accounts are opened": Bank(10, 10, opened_in=(0, 4)).read((10,), (2, 6)),
    "accounts of which no one knows whether they were opened": Bank(10, 10, outcome="info").read((0, 0), (5, 6)),
}


@pytest.mark.parametrize(("bank", "anomalies"), WRONG.values(), ids=WRONG)
def test_it_is_found(tmp_path: Path, bank: Bank, anomalies: dict[str, int]) -> None:
    assert found(tmp_path, bank) == anomalies


@pytest.mark.parametrize("bank", RIGHT.values(), ids=RIGHT)
def test_its_neighbour_is_not(tmp_path: Path, bank: Bank) -> None:
    assert found(tmp_path, bank) == {}


def test_each_says_its_numbers_and_one_read_is_one_finding(tmp_path: Path) -> None:
    judgement = judged(tmp_path, Bank(10, 10).read((10,), (5, 6)).read((10, 11), (10, 11)))
    claims = [one.claim for one in judgement.findings]
    assert claims[:2] == [
        "bank: the read by process 1, called at 0.000 s, shows 10 in 1 of 2 accounts, and 20 had been opened.",
        "bank: the read by process 2, called at 0.000 s, shows 21 in 2 accounts, and 20 had been opened.",
    ]
    assert claims[2].endswith("by what was acknowledged before, and what may have been done by then, it held 10.")
    assert [one.same_cause_as for one in judgement.findings] == [None, None, 1]


def test_sums_beyond_64_bits_are_shown_whole(tmp_path: Path) -> None:
    claims = [finding.claim for finding in judged(tmp_path, Bank(MOST, MOST).read((MOST, 1), (5, 6))).findings]
    assert claims[0] == (
        "bank: the read by process 1, called at 0.000 s, shows 9223372036854775808 in 2 accounts, and "
        "18446744073709551614 had been opened."
    )


def test_a_bank_that_no_one_reads_is_unknown(tmp_path: Path) -> None:
    bank = Bank(100, 100)
    for number in range(20):
        bank.transfer(0, 1, 1, (2 + 2 * number, 3 + 2 * number))
    judgement = judged(tmp_path, bank)
    assert judgement.verdict is Verdict.UNKNOWN
    owed = ("bank-total", "bank-negative")  # what accounts held is not asked of where no one looked
    assert {f"{name} is forbidden, but its check had no data" for name in owed} <= set(judgement.unknown)
    assert judged(tmp_path / "read", bank.read((80, 120), (90, 91))).verdict is Verdict.PASS


def by_loops(bank: Bank) -> dict[str, int]:
    """The three sentences of the module, word for word."""
    opened = {row["owner"]: row["value"] for row in bank.rows if row["kind"] == "bank-open"}
    whole = opened.pop(None) if None in opened else sum(opened.values())
    moves = [row for row in bank.rows if row["kind"] in ("bank-deposit", "bank-withdraw") and row["outcome"] != "fail"]
    reads: dict[int, dict[str, Row]] = {}
    for row in bank.rows:
        if row["kind"] == "bank-read" and row["call"] > 1:
            reads.setdefault(row["op"], {})[row["owner"]] = row
    counts = dict.fromkeys(BANK_ANOMALIES, 0)
    for shown in reads.values():
        total = sum(row["value"] for row in shown.values())
        counts["bank-total"] += total != whole or shown.keys() != opened.keys()
        for owner, row in shown.items():
            counts["bank-negative"] += row["value"] < 0
            if opened[owner] is None:
                continue
            least = most = opened[owner]
            for move in moves:
                if move["owner"] != owner:
                    continue
                certain = move["outcome"] == "ok" and move["ret"] < row["call"]
                amount = move["value"] if move["kind"] == "bank-deposit" else -move["value"]
                if certain:
                    least, most = least + amount, most + amount
                elif move["call"] <= row["ret"]:
                    least, most = least + min(amount, 0), most + max(amount, 0)
            counts["bank-unaccounted"] += not least <= row["value"] <= most
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 600), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_random_banks_get_the_answers_of_loops_and_right_ones_none(tmp_path: Path, seeds: range, wrong: bool) -> None:
    seen = set()
    for seed in seeds:
        bank = at_random(seed, wrong=wrong, split=seed % 3 > 0)
        expected = by_loops(bank)
        assert found(tmp_path / str(seed), bank) == expected, seed
        assert wrong or not expected, seed
        seen |= expected.keys()
    assert seen == (set(BANK_ANOMALIES) if wrong else set())


def with_transfers(amount: int, number: int) -> Bank:
    """A right bank whose two accounts send an amount to and fro."""
    bank = Bank(amount, amount)
    for one in range(number):
        bank.transfer(one % 2, 1 - one % 2, amount, (2 + 2 * one, 3 + 2 * one))
    return bank.read((amount, amount), (2 * number + 2, 2 * number + 3))


@pytest.mark.parametrize(
    ("bank", "fits"),
    [(with_transfers(2**55, 100), True), (with_transfers(2**55, 600), False), (Bank(MOST, -MOST - 1), False)],
    ids=["many", "too many", "one is too large"],
)
def test_sqlite_judges_a_bank_exactly_or_names_it_and_the_engine_to_use(
    tmp_path: Path, bank: Bank, fits: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite ends a sum of more than 64 bits with an error, and makes other results a number near them."""
    folder = write(tmp_path / "bank", bank.rows)
    codes = {engine: main(["check", str(folder), f"--engine={engine}"]) for engine in ("duckdb", "sqlite")}
    assert codes["sqlite"] == (codes["duckdb"] if fits else ExitCode.USAGE)
    line = "assay: the bank bank has amounts whose sum may leave 64 bits, and SQLite has no more; use --engine=duckdb"
    assert (line in capsys.readouterr().err.splitlines()) != fits
