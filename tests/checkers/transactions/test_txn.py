"""Each anomaly of transactions in the smallest history that has it, and the nearest one that has not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from assay.checkers.judging.contract import Contract, forbid
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.transactions import cycles as txn_cycles
from assay.checkers.transactions.family import TRANSACTION_ANOMALIES
from assay.checkers.transactions.graph import classify

from helpers.judging import judge
from helpers.log_histories import write
from helpers.txn_histories import Store, by_sql, numbered

FREE = Contract(minimum_operations=1)


def judged(folder: Path, store: Store, contract: Contract = FREE) -> Judgement:
    return judge(write(folder / "history", store.rows), contract)


def store(*transactions: str | tuple[str, str]) -> Store:
    """Each a text of micro-operations, or with the outcome beside it."""
    made = Store()
    for one in transactions:
        text, outcome = (one, "ok") if isinstance(one, str) else one
        made.add(*text.split(), outcome=outcome)
    return made


PLANTED = {
    "G0": (store("ax1 ay1", "ax2 ay2", "rx12 ry21"), store("ax1 ay1", "ax2 ay2", "rx12 ry12")),
    "G1a": (store(("ax1", "fail"), "rx1"), store(("ax1", "info"), "rx1")),
    "G1a register": (store(("wx1", "fail"), "rx=1"), store(("wx1", "info"), "rx=1")),
    "G1b": (store("ax1 ax2", "rx1"), store("ax1 ax2", "rx12")),
    "G1b register": (store("wx1 wx2", "rx=1"), store("wx1 rx=1 wx2", "rx=2")),
    "G1c": (store("ax1 ry2", "ay2 rx1"), store("ax1 ry", "ay2 rx1")),
    "G1c register": (store("wx1 ry=2", "wy2 rx=1"), store("wx1 ry", "wy2 rx=1")),
    "G-single": (store("ax1 ay1", "rx1 ry"), store("ax1 ay1", "rx ry")),
    "G-single register": (store("wx1 wy1", "rx=1 ry"), store("wx1 wy1", "rx ry")),
    "G-single of a lost update": (store("rx ax1", "rx ax2"), store("rx ax1", "rx1 ax2")),
    "G-single of a lost update of a register": (store("rx wx1", "rx wx2"), store("rx wx1", "rx=1 wx2")),
    "G-single of a repeated read": (store("wx1", "wx2", "rx=1 rx=2"), store("wx1", "wx2", "rx=1 rx=1")),
    "G-single of a repeated read of a list": (store("ax1", "rx rx1"), store("ax1", "rx1 rx1")),
    "G-nonadjacent": (store("ax1", "ay1", "rx1 ry", "rx ry1"), store("ax1", "ay1", "rx1 ry", "rx1 ry1")),
    "G2-item": (store("rx ay1", "ry ax1"), store("rx ay1", "ry1 ax1")),
    "G2-item register": (store("rx wy1", "ry wx1"), store("rx wy1", "ry=1 wx1")),
    "garbage-read": (store("ax1", "rx17"), store("ax1 ax7", "rx17")),
    "garbage-read register": (store("wx1", "rx=7"), store("wx1 wy7", "rx=1")),
    "internal: an own append is missing": (store("ax1", "ax2 rx1"), store("ax1", "ax2 rx12")),
    "internal: an own append is early": (store("ax1", "rx12 ax2"), store("ax1", "rx1 ax2")),
    "internal: own appends change places": (store("ax1 ax2 rx21"), store("ax1 ax2 rx12")),
    "internal: an own append got lost": (store("ax1 ax2", "rx2"), store("ax2", "rx2")),
    "internal: an own write is missing": (store("wx1 wx2 rx=1"), store("wx1 wx2 rx=2")),
    "internal: an own write is early": (store("rx=2 wx2"), store("rx wx2 rx=2")),
    "duplicate-elements": (store("ax1 ax2", "rx121"), store("ax1 ax2", "rx12")),
    "incompatible-order": (store("ax1", "ax2", "rx12", "rx2"), store("ax1", "ax2", "rx12", "rx1")),
    "G0 by an append that no read shows": (store("ax1 ax3", "ax2", "rx12"), store("ax1 ax3", "ax2", "rx132")),
    "G1b, and no cycle": (store("ax1 ax2", "rx1", "rx12"), store("ax1 ax2", "rx12", "rx12")),
    "G-single by a write of unknown fate": (
        store(("wx1 wy1", "info"), "rx=1 ry"), store(("wx1 wy1", "info"), "rx ry"),
    ),
    "G-single past one of two appends that no read shows": (
        store("ax1 ay1", "ay2", "rx1 ry"), store("ax1 ay1", "ay2", "rx ry"),
    ),
    "G-single of a lost update of 0": (
        store("wx0", "rx=0 wx1", "rx=0 wx2"), store("wx0", "rx=0 wx1", "rx wx2"),
    ),
    "G-single of a repeated read in a write skew": (
        store("wx1", "wx2", "rp rx=1 rx=2 wq1", "rq wp1"), store("wx1", "wx2", "rp rx=1 rx=1 wq1", "rq=1 wp1"),
    ),
    "garbage-read register, and no lost update": (
        store("rx=7 wx1", "rx=7 wx2"), store("wx7", "rx=7 wx1", "rx=1 wx2"),
    ),
    "internal: an own append is missing from an empty list": (store("ax1 rx"), store("rx ax1 rx1")),
    "internal: an own append was seen, and then not": (store("ax1 rx1 rx"), store("ax1 rx1 rx1")),
    "internal: an own write is missing from an empty register": (store("wx1 rx"), store("rx wx1 rx=1")),
    "internal: an own write is early, and no other version": (
        store("wx1", "rx=1 rx=2 wx2"), store("wx1", "rx=1 wx2 rx=2"),
    ),
    "internal: an own write is early, and then no more": (
        store("wx1", "rx=2 rx=1 wx2"), store("wx1", "rx=1 rx=1 wx2 rx=2"),
    ),
    "internal: an own write is early, and not the last": (store("rx=1 wx1 wx2"), store("rx wx1 wx2 rx=2")),
    "internal: an own write is early, and no lost update": (
        store("rx=2 wx2", "rx=2 wx3"), store("rx wx2", "rx=2 wx3"),
    ),
    "duplicate-elements, and no cycle": (store("ax1", "ax2", "rx121"), store("ax1", "ax2", "rx12")),
    "incompatible-order, and no cycle": (
        store("ax1 ay1", "ax2 ay2", "rx12", "rx21", "ry12"), store("ax1 ay1", "ax2 ay2", "rx12", "rx12", "ry12"),
    ),
    "incompatible-order in the last place alone": (
        store("ax1", "ax2", "ax3", "rx12", "rx13"), store("ax1", "ax2", "ax3", "rx12", "rx123"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, set[str]]:
    """The anomalies of all planted histories, which lie side by side in one: the bad at even numbers."""
    histories = [
        numbered(place, one.txns) for place, one in enumerate(one for pair in PLANTED.values() for one in pair)
    ]
    return by_sql(tmp_path_factory.mktemp("planted") / "history", histories)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found_and_its_neighbour_is_not(found: dict[int, set[str]], name: str) -> None:
    anomaly = name.split(" ")[0].rstrip(":,")
    place = 2 * list(PLANTED).index(name)
    assert found.get(place) == {anomaly}
    assert place + 1 not in found


def test_indeterminate_transactions_count_only_where_they_were_seen(tmp_path: Path) -> None:
    """Seen on x, so its append to y is there as well; unseen, it may never have happened."""
    seen = store(("ax1 ay1", "info"), "rx1", "rx1 ry")
    unseen = store(("ax1 ay1", "info"), "rx", "rx ry")
    failed = store(("ax1 ay1", "fail"), "rx", "rx ry")
    assert judged(tmp_path / "seen", seen).anomalies == {"G-single": 1}
    assert judged(tmp_path / "unseen", unseen).anomalies == {}
    assert judged(tmp_path / "failed", failed).anomalies == {}


def test_reads_of_transactions_that_did_not_end_well_prove_nothing(tmp_path: Path) -> None:
    """No one knows what they read; where a history tells it all the same, it does not count."""
    assert judged(tmp_path / "0", store("ax1 ay1", ("rx1 ry", "info"), ("rx1 ry", "fail"), "rx1")).anomalies == {}
    made = store("as1 ru", "rs au1", "ru1", "ai1 rj1", "ri1 aj1", "wp1 rq=2", "rp=1 wq2", "an1 rn", "rn1", "rx7")
    assert judged(tmp_path / "1", made).anomalies == {
        "G1c": 2, "G2-item": 1, "garbage-read": 1, "internal": 1,
    }  # fmt: skip
    reported = [row | {"outcome": "info", "ret": None} if row["op"] in (1, 4, 6, 7, 9) else row for row in made.rows]
    assert judge(write(tmp_path / "2", reported), FREE).anomalies == {}


def test_what_failed_is_left_out_of_the_order(tmp_path: Path) -> None:
    """Reading 1 was wrong; but 2, 3 are not in another order for it, and the cycle they are on counts as well."""
    made = store(("ax1", "fail"), "ax2 ay2", "ax3 ay3", "rx12", "rx23", "rx123 rx123", "ry32")
    assert judged(tmp_path / "order", made).anomalies == {"G0": 1, "G1a": 1}
    # Each read is as long as it is without what failed: two of one transaction, one of them empty; and none too long.
    assert judged(tmp_path / "two", store(("ax1", "fail"), "ax2", "rx1 rx12")).anomalies == {"G-single": 1, "G1a": 1}
    assert judged(tmp_path / "long", store(("ax1", "fail"), "ax2", "ax3", "rx12", "rx123")).anomalies == {"G1a": 1}


def test_the_strongest_class_of_a_component_is_reported_with_a_shortest_cycle(tmp_path: Path) -> None:
    """A write skew, two of whose transactions are on a longer cycle of dirty writes."""
    made = store("ax1 az1 rq", "ax2 ay2", "ay3 az3 aq9", "rx12 ry23 rz31", "rq9")
    judgement = judged(tmp_path, made)
    assert judgement.anomalies == {"G0": 1}
    (finding,) = judgement.findings
    assert (finding.operations, finding.omitted, finding.cycle) == ((0, 1, 2, 3), 0, True)
    assert f": {'; '.join(finding.reasons)}" in finding.claim
    assert len(finding.reasons) == 3, "operation 3 only shows the order"
    assert finding.claim == (
        "3 transactions go round in a circle: "
        "transaction 1 appended 2 to x after 1 of transaction 0, by what transaction 3 read; "
        "transaction 2 appended 3 to y after 2 of transaction 1, by what transaction 3 read; "
        "transaction 0 appended 1 to z after 3 of transaction 2, by what transaction 3 read."
    )


def test_each_edge_says_why_it_holds(tmp_path: Path) -> None:
    made = store(
        "wx1 wy1", "rx=1 ry", "ap1 aq1", "rp1 rq", "rm an1", "rn am1", "rl wl1", "rl wl2", "wf1 wg1", "wg2", "rf=1 rg",
        "aa1 ab1 ac1", "aa2 rb1 rc", "ra12",
    )  # fmt: skip
    claims = {finding.anomaly + (finding.key or ""): finding.claim for finding in judged(tmp_path, made).findings}
    assert claims["G-singlex"] == (
        "2 transactions go round in a circle: transaction 1 read 1 of x, which transaction 0 wrote; "
        "transaction 1 read y when nothing was in it, without the 1 that transaction 0 wrote."
    )
    assert claims["G-singlep"] == (
        "2 transactions go round in a circle: transaction 3 read 1 of p, which transaction 2 appended; "
        "transaction 3 read q when nothing was in it, without the 1 that transaction 2 appended."
    )
    assert claims["G-singlel"] == (
        "2 transactions go round in a circle: "
        "transaction 6 read l when nothing was in it and then wrote to it itself, "
        "without the 2 that transaction 7 wrote; "
        "transaction 7 read l when nothing was in it and then wrote to it itself, "
        "without the 1 that transaction 6 wrote."
    )
    # That 12 read b tells the same, but less of it.
    assert claims["G-singlea"] == (
        "2 transactions go round in a circle: "
        "transaction 12 appended 2 to a after 1 of transaction 11, by what transaction 13 read; "
        "transaction 12 read c when nothing was in it, without the 1 that transaction 11 appended."
    )
    # There are two that wrote to g after it was read.
    assert claims["G-singlef"].endswith(
        "transaction 10 read g when nothing was in it, without the 1 that transaction 8 wrote."
    )
    assert claims["G2-itemm"].endswith(
        "transaction 5 read n when nothing was in it, without the 1 that transaction 4 appended."
    )


def test_real_time_counts_where_the_contract_says_so(tmp_path: Path) -> None:
    stale = store("ax1", "rx", "rx1")
    assert judged(tmp_path / "none", stale).anomalies == {}
    strict = Contract(minimum_operations=1, transaction_order="real-time")
    judgement = judged(tmp_path / "stale", stale, strict)
    assert judgement.anomalies == {"G-single-real-time": 1}
    assert judgement.findings[0].claim == (
        "2 transactions go round in a circle by real-time order: transaction 0 had returned at 0.000006 s, before "
        "transaction 1 was called at 0.000011 s; transaction 1 read x when nothing was in it, without the 1 that "
        "transaction 0 appended."
    )
    fresh = Store()
    fresh.add("ax1", when=(1, 20))
    fresh.add("rx", when=(10, 15))
    fresh.add("rx1", when=(30, 40))
    assert judged(tmp_path / "fresh", fresh, strict).anomalies == {}


def overlapping() -> Store:
    """Two transactions at once return before a third is called."""
    made = Store()
    made.add("ax1", when=(1, 6))
    made.add("aq1", when=(2, 8))
    made.add("rx", when=(11, 16))
    made.add("rx1", when=(21, 26))
    return made


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (overlapping(), {"G-single-real-time": 1}),
        (store("ax1 ay1", "rx1 ry"), {"G-single": 1}),
        (store("ax1 ay1", "rx1 ry", "rx"), {"G-single": 1}),
        (store("rx ay1", "ry ax1"), {"G2-item": 1, "G-single-real-time": 1}),
        (store("wx1", "wx2", "wy1", "rx=1 rx=2 ry"), {"G-single": 1}),
    ],
)
def test_time_is_blamed_only_where_it_makes_a_component_worse(
    tmp_path: Path, made: Store, expected: dict[str, int]
) -> None:
    assert judged(tmp_path, made, Contract(minimum_operations=1, transaction_order="real-time")).anomalies == expected


def test_the_order_of_a_process_counts_where_the_contract_says_so(tmp_path: Path) -> None:
    contract = Contract(minimum_operations=1, transaction_order="process")
    for mine, expected in ((3, {"G-single-process": 1}), (4, {})):
        made = Store()
        made.add("ax1", process=3)
        made.add("rx", process=mine)
        made.add("rx1", process=5)
        judgement = judged(tmp_path / str(mine), made, contract)
        assert judgement.anomalies == expected
    assert "process" not in str(judgement.findings)


def test_keys_that_break_the_rules_make_the_verdict_unknown(tmp_path: Path) -> None:
    judgement = judged(tmp_path / "most", store("aq1", "wq2", "wr2", "rr2", "as1 rs=1", "az1", "rz1"))
    assert (judgement.verdict, judgement.anomalies) == (Verdict.UNKNOWN, {})
    assert judgement.unknown == tuple(
        f"transactions on {key} cannot be judged: it is a list and a register at once" for key in "qrs"
    )
    nothing = [row | {"value": None} if row["op"] == 0 else row for row in store("ax1", "ay1", "ry1").rows]
    judgement = judge(write(tmp_path / "nothing", nothing), FREE)
    assert judgement.unknown == ("transactions on x cannot be judged: a write on it has no value",)


def test_values_that_were_written_twice_are_named(tmp_path: Path) -> None:
    made = store("ao1 ro", "ao1", "wp1", "wp1", "rp=1", "ax1", "ax1", "rx11", "az1", "rz1")
    judgement = judged(tmp_path, made)
    assert (judgement.verdict, judgement.anomalies) == (Verdict.UNKNOWN, {})
    assert judgement.unknown == tuple(
        f"1 was written to {key} twice, so reads of it have no single writer and are not judged" for key in "opx"
    )


@pytest.mark.parametrize("level", [None, "serializable"])
def test_a_value_that_was_written_twice_leaves_the_other_values_of_its_key(tmp_path: Path, level: str | None) -> None:
    contract = FREE if level is None else FREE.isolate(level)
    for name, text, anomaly in (
        ("fractured", ("ax5", "ax5", "ax1", "rx551 ry", "ax6 ay6", "rx551 ry6"), "G-single"),
        ("aborted", (("wx3", "fail"), "wx1", "wx1", "rx=3"), "G1a"),
        ("garbage", ("wx1", "wx1", "rx=3"), "garbage-read"),
        ("intermediate", ("wx3 wx4", "wx1", "wx1", "rx=3"), "G1b"),
        ("twice", ("ax2", "ax1", "ax1", "rx121"), None),
        ("incompatible", ("ax2", "ax3", "ax1", "ax1", "rx1231", "rx1321"), "incompatible-order"),
    ):
        judgement = judged(tmp_path / name, store(*text), contract)
        assert list(judgement.anomalies) == ([] if anomaly is None else [anomaly]), name
        assert judgement.verdict is (Verdict.UNKNOWN if anomaly is None else Verdict.FAIL), name


def test_what_failed_may_be_tried_again(tmp_path: Path) -> None:
    judgement = judged(tmp_path, store(("ax1 wy1", "fail"), ("ax1 wy1", "fail"), "ax1 wy1", "rx1 ry=1"))
    assert (judgement.verdict, judgement.unknown, judgement.anomalies) == (Verdict.PASS, (), {})


def test_too_little_is_unknown(tmp_path: Path) -> None:
    """No transactions, none that read anything, and fewer than the contract asks for."""
    contract = forbid(*TRANSACTION_ANOMALIES)
    assert judged(tmp_path / "0", store(), contract).verdict is Verdict.UNKNOWN
    unread = judged(tmp_path / "1", store(*(f"ax{number}" for number in range(1, 15))), contract)
    assert unread.verdict is Verdict.UNKNOWN
    assert "G1a is forbidden, but its check had no data" in unread.unknown
    thin = store("ax1", "rx1", "rx1 ay1", "ry1")
    few = "only 4 operations succeeded, the contract asks for 10"
    (reason,) = judged(tmp_path / "2", thin, contract).unknown
    assert reason == f"{few}; let the run last longer (--time-limit), or raise --rate"
    reasons = judged(tmp_path / "one", store("ax1"), contract).unknown
    assert any(one.startswith("only 1 operation succeeded, the contract asks for 10") for one in reasons)
    assert judged(tmp_path / "3", thin).verdict is Verdict.PASS


def test_an_unfinished_history_may_lack_writers(tmp_path: Path) -> None:
    folder = write(tmp_path / "history", store("ax1", "rx17").rows)
    judgement = judge(folder, FREE, complete=False)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.anomalies == {}


def test_a_level_is_a_choice_of_anomalies(tmp_path: Path) -> None:
    """Snapshot isolation allows write skew; serializability does not."""
    skew = store("rx ay1", "ry ax1", "rx1 ry1")
    snapshot = Contract(minimum_operations=1).tolerate("G2-item")
    assert judged(tmp_path / "snapshot", skew, snapshot).verdict is Verdict.PASS
    assert judged(tmp_path / "serializable", skew).verdict is Verdict.FAIL


def test_one_instance_is_one_component_and_all_are_counted(tmp_path: Path) -> None:
    made = Store()
    for number in range(30):
        key = chr(ord("A") + number)
        made.add(f"r{key}", f"a{chr(ord(key) + 64)}1")
        made.add(f"r{chr(ord(key) + 64)}", f"a{key}1")
    judgement = judged(tmp_path, made)
    assert judgement.anomalies == {"G2-item": 30}
    assert len(judgement.findings) == 20


def test_each_wrong_read_is_reported_with_its_reader_and_writer(tmp_path: Path) -> None:
    made = store(
        ("aa1", "fail"), "ra1", "ra1",
        "rg=7", "rg=7",
        "ab1 ab2", "rb1", "rb1",
        "ad1", "ad2", "rd1 rd1", "rd121", "rd12111",
        ("ao9", "fail"), "ao1", "ao2", "ao3", "ro912", "ro2", "ro31",
        "ai1 ri", "rj1 aj1", "ak1 ak2 rk21",
    )  # fmt: skip
    reported = [(one.anomaly, one.claim, one.operations, one.omitted) for one in judged(tmp_path, made).findings]
    assert reported == [
        ("G1a", "Transaction 1 of process 1 read 1 of a, the write of which by transaction 0 had definitely failed.",
         (1, 0), 1),
        ("G1a", "Transaction 17 of process 17 read 9 of o, the write of which by transaction 13 had definitely failed.",
         (17, 13), 0),
        ("G1b", "Transaction 6 of process 6 read b as transaction 5 left it with 1, and not with 2, the last that it "
         "wrote there.", (6, 5), 1),
        ("garbage-read", "Transaction 3 of process 3 read 7 of g, which no transaction wrote.", (3,), 1),
        ("internal", "Transaction 20 of process 20 wrote 1 to i, and then read i without it.", (20,), 0),
        ("internal", "Transaction 21 of process 21 read 1 of j before it wrote it itself.", (21,), 0),
        ("internal", "Transaction 22 of process 22 appended 2 to k after another element of its own, which reads show "
         "behind 2 or do not show.", (22,), 0),
        ("duplicate-elements", "Transaction 11 of process 11 read d with 1 in it more than once, which no one appended "
         "twice.", (11,), 1),
        ("incompatible-order", "o was read as two lists, and neither is a prefix of the other: element 0 is 1 to "
         "transaction 17 of process 17, and 3 to transaction 19 of process 19.", (17, 19), 1),
    ]  # fmt: skip


def test_a_register_that_was_read_as_two_versions_is_reported_once(tmp_path: Path) -> None:
    """By the first of its keys, and as such only where no other cycle is as strong."""
    twice = judged(tmp_path / "twice", store("wx1 wy1", "wx2 wy2", "rx=1 rx=2 ry=1 ry=2"))
    assert twice.anomalies == {"G-single": 1}
    assert [(one.key, one.operations, one.claim) for one in twice.findings] == [
        ("x", (2, 1), "Transaction 2 read x twice, and found first 1 of another transaction and then 2 of another "
         "transaction: both reads should have shown the same version."),
    ]  # fmt: skip
    assert not twice.findings[0].cycle
    skew = judged(tmp_path / "skew", store("wx1", "wx2", "rp rx=1 rx=2 wq1", "rq wp1"))
    assert skew.anomalies == {"G-single": 1}
    circle = judged(tmp_path / "circle", store("wx1 wp1", "wx2", "rx=1 rx=2 rp"))
    assert circle.anomalies == {"G-single": 1}
    assert circle.findings[0].claim.startswith("2 transactions go round in a circle")


def test_of_a_large_component_a_cycle_is_described_and_the_rest_counted(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, store("rx ay1 as1", "ry ax1 rq", "aq1 rr", "ar1 rs")).findings
    assert (finding.operations, finding.omitted) == ((0, 1), 2)
    assert finding.claim.endswith("; 4 transactions depend on each other in circles in all.")


def test_a_search_that_ends_early_makes_the_verdict_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_cycles, "classify", partial(classify, limit=0))
    fork = store("ax1", "ay1", "rx1 ry", "rx ry1")
    tolerant = Contract(minimum_operations=1).tolerate("G-nonadjacent")
    judgement = judged(tmp_path, fork, tolerant)
    assert (judgement.verdict, judgement.anomalies) == (Verdict.UNKNOWN, {"G-nonadjacent": 1})
    assert judgement.unknown[0].startswith("G-single cannot be ruled out in 1 groups of transactions")


def test_a_write_is_exposed_if_another_transaction_read_it(tmp_path: Path) -> None:
    made = store("ax1 ax2", "rx12 ay1 ry1", ("ax3", "fail"), ("az4", "fail"), "wr1", "wr2 wr3", "rr=3")
    counts = {one.check: (one.claims, one.exposed) for one in judged(tmp_path, made).examined}
    expected = {"G1a": (2, 1), "G1b": (2, 2), "G1c": (6, 3), "G-single": (6, 3)}
    assert {name: counts[name] for name in expected} == expected


def test_a_run_that_needs_g1c_and_reads_nothing_of_others_is_unknown(tmp_path: Path) -> None:
    contract = Contract(forbidden=("G1c",), minimum_operations=1)
    blind = judged(tmp_path / "blind", store("rx ay1", "ax1"), contract)
    assert blind.unknown == (
        "G1c: 2 writes were acknowledged, none was read by another transaction; let transactions read what others "
        "write",
    )
    sound = judged(tmp_path / "sound", store("rx ay1", "ax1 ry1"), contract)
    assert (sound.verdict, sound.unknown, sound.warnings) == (Verdict.PASS, (), ())
