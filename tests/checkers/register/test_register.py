"""Each register anomaly: a history made by hand that has it, and its nearest neighbour that has not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Finding, Verdict
from assay.checkers.register.chains import find_ancestors, find_kept
from assay.checkers.register.family import PREPARED, REGISTER, REGISTER_ANOMALIES, REGISTER_CAS
from assay.checkers.register.views import CLUSTER_VIEWS, SOURCE_VIEWS

from helpers.judging import judge, opened
from helpers.log_histories import Row, write
from helpers.register_histories import Ledger
from helpers.register_oracle import linearizable

Make = Callable[[Ledger], None]


def found(folder: Path, rows: list[Row]) -> list[Finding]:
    with opened(write(folder / "history", rows)) as engine:
        register_contract(engine, Contract())
        create_views(engine, REGISTER.views)
        for family, some in ((REGISTER, "true"), (REGISTER_CAS, "kind = 'cas'")):  # known by the kinds of effects alone
            assert engine.rows(family.applies) == engine.rows(
                f"select count(*) as examined from register_rows where {some}"
            )
        assert PREPARED(engine) == []
        reported = []
        for check in (*REGISTER.checks, *REGISTER_CAS.checks):
            create_views(engine, check.views)
            reported += read_findings(engine, check)
        return reported


def _read_of_nothing_written(book: Ledger) -> None:
    book.write(1, (0, 10))
    book.read(7, (20, 30))


def _read_of_a_failed_write(book: Ledger) -> None:
    book.write(1, (0, 10), outcome="fail")
    book.read(1, (20, 30))


def _read_of_an_indeterminate_write(book: Ledger) -> None:
    book.write(1, (0, None))
    book.read(1, (20, 30))


def _cas_of_nothing_written(book: Ledger) -> None:
    book.cas(7, 8, (0, 10))


def _cas_of_an_indeterminate_write(book: Ledger) -> None:
    book.write(7, (0, None))
    book.cas(7, 8, (1, 10))


def _circle(book: Ledger) -> None:
    book.cas(1, 2, (0, 10))
    book.cas(2, 1, (1, 11))


def _no_circle(book: Ledger) -> None:
    book.cas(None, 2, (0, 10))
    book.cas(2, 1, (1, 11))


def _two_versions(book: Ledger) -> None:
    book.write(1, (0, 10), version=3)
    book.read(1, (20, 30), version=4)


def _one_version(book: Ledger) -> None:
    book.write(1, (0, 10), version=3)
    book.read(1, (20, 30), version=3)


def _before_it_was_written(book: Ledger) -> None:
    book.read(1, (0, 10))
    book.write(1, (20, 30))


def _while_it_was_written(book: Ledger) -> None:
    book.read(1, (0, 21))
    book.write(1, (20, 30))


def _old_value_again(book: Ledger) -> None:
    book.write(1, (0, 10))
    book.write(2, (20, 30))
    book.read(1, (40, 50))


def _writes_overlap(book: Ledger) -> None:
    """1 may have come last; no one saw 2 after it."""
    book.write(1, (0, 25))
    book.write(2, (20, 30))
    book.read(1, (40, 50))


def _flicker(book: Ledger) -> None:
    """The writes overlap, so either may be first, but not both."""
    book.write(1, (0, 100))
    book.write(2, (1, 101))
    book.read(1, (10, 20))
    book.read(2, (30, 40))
    book.read(1, (50, 60))


def _no_flicker(book: Ledger) -> None:
    book.write(1, (0, 100))
    book.write(2, (1, 101))
    book.read(1, (10, 45))
    book.read(2, (30, 40))
    book.read(1, (44, 60))


def _empty_again(book: Ledger) -> None:
    book.write(1, (0, 10))
    book.read(None, (20, 30))


def _still_empty(book: Ledger) -> None:
    book.write(1, (0, 25))
    book.read(None, (20, 30))


def _late_write_lands(book: Ledger) -> None:
    """An indeterminate write takes effect at any time, but only once."""
    book.write(1, (0, None))
    book.write(2, (20, 30))
    book.read(1, (40, 50))


def _late_write_lands_twice(book: Ledger) -> None:
    _late_write_lands(book)
    book.write(3, (60, 70))
    book.read(1, (80, 90))


def _chain_goes_back(book: Ledger) -> None:
    book.write(1, (0, 10))
    book.cas(1, 2, (5, 60))
    book.read(2, (20, 30))
    book.read(1, (40, 50))


def _chain_goes_on(book: Ledger) -> None:
    book.write(1, (0, 10))
    book.cas(1, 2, (5, 60))
    book.read(2, (20, 45))
    book.read(1, (40, 50))


def _write_inside_a_chain(book: Ledger) -> None:
    """No one read 9, but it came and went between 1 and the CAS that still found 1."""
    book.write(1, (0, 10))
    book.write(9, (20, 30))
    book.cas(1, 2, (40, 50))


def _write_beside_a_chain(book: Ledger) -> None:
    book.write(1, (0, 25))
    book.write(9, (20, 30))
    book.cas(1, 2, (40, 50))


def _version_goes_back(book: Ledger) -> None:
    book.write(1, (0, 10), version=2)
    book.write(2, (20, 30), version=1)


def _versions_of_writes_that_overlap(book: Ledger) -> None:
    book.write(1, (0, 21), version=2)
    book.write(2, (20, 30), version=1)


def _replaced_twice(book: Ledger) -> None:
    book.write(1, (0, 10))
    book.cas(1, 2, (20, 30))
    book.cas(1, 3, (25, 35))


def _replaced_once(book: Ledger) -> None:
    """No one observed what the indeterminate CAS wrote, so it did not happen."""
    book.write(1, (0, 10))
    book.cas(1, 2, (20, None))
    book.cas(1, 3, (25, 35))


def _replaced_twice_and_continued(book: Ledger) -> None:
    """No one read 2, but a CAS expected it, and what that one wrote was read."""
    book.write(1, (0, 10))
    book.cas(1, 2, (20, None))
    book.cas(2, 4, (21, None))
    book.cas(1, 3, (25, 35))
    book.read(4, (26, 36))


def _lost_between_versions(book: Ledger) -> None:
    book.write(1, (0, 10), version=1)
    book.write(2, (11, 22), version=2)
    book.cas(1, 3, (12, 23), version=3)


def _in_order_of_versions(book: Ledger) -> None:
    book.write(1, (0, 10), version=1)
    book.write(2, (11, 22), version=3)
    book.cas(1, 3, (12, 23), version=2)


def _one_version_two_values(book: Ledger) -> None:
    book.write(1, (0, 20), version=1)
    book.write(2, (1, 21), version=1)


def _two_versions_two_values(book: Ledger) -> None:
    book.write(1, (0, 20), version=1)
    book.write(2, (1, 21), version=2)


HAVE: list[tuple[str, Make, Make, str]] = [
    ("missing-writer", _read_of_nothing_written, _read_of_an_indeterminate_write, "no one wrote it"),
    ("missing-writer", _read_of_a_failed_write, _read_of_an_indeterminate_write, "process 0 at 0.000 s had definitely"),
    ("missing-writer", _cas_of_nothing_written, _cas_of_an_indeterminate_write, "Value 7 of r-0 was observed"),
    ("missing-writer", _circle, _no_circle, "circle"),
    ("missing-writer", _two_versions, _one_version, "at versions 3 and 4"),
    ("future-read", _before_it_was_written, _while_it_was_written, "by 0.010 s, before process 1 began"),
    ("stale-read", _old_value_again, _writes_overlap, "then process 2 began to read value 1 at 0.040 s"),
    ("stale-read", _flicker, _no_flicker, "r-0 held value 1 by 0.020 s (process 2)"),
    ("stale-read", _empty_again, _still_empty, "had its initial value"),
    ("stale-read", _late_write_lands_twice, _late_write_lands, "value 3 was there by 0.070 s"),
    ("stale-read", _chain_goes_back, _chain_goes_on, "value 2 comes after value 1 by its CAS"),
    ("stale-read", _write_inside_a_chain, _write_beside_a_chain, "of the same chain"),
    ("stale-read", _version_goes_back, _versions_of_writes_that_overlap, "by version"),
    ("lost-update", _replaced_twice, _replaced_once, "Value 1 of r-0 was replaced twice"),
    ("lost-update", _replaced_twice_and_continued, _replaced_once, "by CAS to value 2"),
    ("lost-update", _lost_between_versions, _in_order_of_versions, "but the version before it holds value 2"),
    ("lost-update", _one_version_two_values, _two_versions_two_values, "Version 1 of r-0 holds value 1 (process 0)"),
]


@pytest.mark.parametrize(("anomaly", "make", "legal", "words"), HAVE, ids=[have[1].__name__[1:] for have in HAVE])
def test_it_is_found_and_its_neighbour_is_not(
    tmp_path: Path, anomaly: str, make: Make, legal: Make, words: str
) -> None:
    bad, good = Ledger("r-0"), Ledger("r-1", next_op=100)
    make(bad)
    legal(good)
    versions = any(row["version"] is not None for row in bad.rows)
    assert not linearizable(bad.rows, versions=versions)
    assert linearizable(good.rows, versions=versions)
    (finding,) = found(tmp_path, bad.rows + good.rows)
    assert (finding.anomaly, finding.key) == (anomaly, "r-0")
    assert words in finding.claim
    assert finding.operations
    if anomaly == "stale-read":
        assert not linearizable(named(bad.rows, finding), versions=versions), "what is named proves it"


def named(rows: list[Row], finding: Finding) -> list[Row]:
    """Returns the rows that a finding names, as if every value that they use may have been written before."""
    some = [row for row in rows if row["op"] in finding.operations]
    written = {row["value"] for row in some if row["kind"] != "register-read"}
    used = {row[name] for row in some for name in ("value", "expected")} - written - {None}
    before = Ledger("r-0", next_op=200)
    for value in sorted(used):
        before.write(value, (-1, None))
    return before.rows + some


def test_one_late_call_is_one_instance(tmp_path: Path) -> None:
    book = Ledger()
    for value in range(50):
        book.write(value, (100 * value, 100 * value + 10))
        book.read(value, (100 * value + 20, 100 * value + 30))
    late = book.read(3, (9000, 9010))
    (finding,) = found(tmp_path, book.rows)
    assert finding.operations[0] == late
    assert finding.omitted == 45


def test_failed_and_indeterminate_reads_and_failed_cas_prove_nothing(tmp_path: Path) -> None:
    book = Ledger()
    book.write(1, (0, 10))
    book.read(8, (11, 20), outcome="fail")
    book.read(9, (21, None))
    book.cas(5, 6, (22, 30), outcome="fail")
    assert found(tmp_path, book.rows) == []


@pytest.mark.parametrize("outcome", ["info", "fail"])
def test_a_cas_without_an_answer_has_been_looked_at_and_so_has_one_that_failed(tmp_path: Path, outcome: str) -> None:
    book = Ledger()
    for number in range(20):
        book.write(2 * number, (number * 10, number * 10 + 3))
        book.read(2 * number, (number * 10 + 4, number * 10 + 6))
    book.cas(38, 1001, (1000, None if outcome == "info" else 1010), outcome=outcome)
    book.read(38, (1020, 1030))
    judged = judge(write(tmp_path / "history", book.rows), forbid(*REGISTER_ANOMALIES))
    assert judged.verdict is Verdict.PASS, judged.unknown


@pytest.mark.parametrize("length", [1, 2, 3, 64, pytest.param(100, marks=pytest.mark.long)])
def test_pointer_doubling_climbs_in_logarithmic_rounds(tmp_path: Path, length: int) -> None:
    """A chain of CAS operations of unknown fate, of which only the last value was read: each step back is a round."""
    book = Ledger()
    book.write(0, (0, 1))
    for value in range(1, length + 1):
        book.cas(value - 1, value, (10 * value, None))
    book.read(length, (10 * length + 1, 10 * length + 2))
    with opened(write(tmp_path / "history", book.rows)) as engine:
        register_contract(engine, Contract())
        create_views(engine, (*REGISTER.views, *SOURCE_VIEWS))
        assert find_kept(engine) == length - 1
        create_views(engine, CLUSTER_VIEWS)
        assert find_ancestors(engine) <= length.bit_length() + 1
        rows = engine.rows(
            "select value, ancestor, distance, no_start from register_ancestors order by value nulls first"
        )
    assert [tuple(row.values()) for row in rows] == [(value, 0, value, 0) for value in range(1, length + 1)]


def test_values_that_are_not_unique_make_it_unknown(tmp_path: Path) -> None:
    bad, good = Ledger("r-0"), Ledger("r-1", next_op=100)
    bad.write(1, (0, 10))
    bad.write(2, (20, 30))
    bad.write(1, (40, 50))
    bad.read(1, (60, 70))
    for number in range(20):
        good.write(number, (1000 + number * 10, 1005 + number * 10))
        good.read(number, (1006 + number * 10, 1009 + number * 10))
    judged = judge(write(tmp_path / "history", bad.rows + good.rows), forbid("stale-read"))
    assert judged.verdict is Verdict.UNKNOWN
    assert [reason for reason in judged.unknown if "r-0" in reason and "value 1 was written more than once" in reason]


def test_a_register_history_is_judged_by_its_own_families_alone(tmp_path: Path) -> None:
    book = Ledger()
    for number in range(20):
        book.write(2 * number, (number * 10, number * 10 + 3))
        book.read(2 * number, (number * 10 + 4, number * 10 + 6))
    judged = judge(write(tmp_path / "a", book.rows), Contract())
    assert (judged.verdict, judged.unknown) == (Verdict.PASS, ())
    book.cas(38, 1001, (1000, 1010))
    judged = judge(write(tmp_path / "b", book.rows), Contract())
    assert judged.verdict is Verdict.PASS
    assert set(REGISTER_ANOMALIES) <= {one.check for one in judged.examined}
    book.cas(38, 1003, (1001, 1011))
    judged = judge(write(tmp_path / "c", book.rows), Contract())
    assert (judged.verdict, judged.anomalies) == (Verdict.FAIL, {"lost-update": 1})


def test_a_cas_without_an_answer_is_named_with_what_shows_that_it_was_done(tmp_path: Path) -> None:
    book = Ledger()
    failed = book.write(3, (0, 10), outcome="fail")
    cas = book.cas(3, 4, (11, None), outcome="info")
    read = book.read(4, (20, 30))
    (finding,) = [one for one in found(tmp_path, book.rows) if one.anomaly == "missing-writer"]
    assert finding.operations == (cas, failed, read)
