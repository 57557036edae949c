"""Tests what may go when all servers lose power, and its nearest neighbours, which may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Verdict
from assay.checkers.log.unflushed import UNFLUSHED_LOSS

from helpers.log_histories import Book
from helpers.power_histories import CONTRACT, PLAIN, Log, M

ENDS = msgspec.structs.replace(CONTRACT, linearizable_ends=True)


def test_the_unflushed_tail_may_go_with_the_power_of_all(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([1, 2, 3, 4]).run(10).judged(tmp_path, CONTRACT)
    assert judged.unknown == ()
    assert judged.verdict is Verdict.PASS
    assert judged.anomalies == {UNFLUSHED_LOSS: 4}
    first = judged.findings[0].claim
    assert "value 17 at offset 16 of orders-0 was acknowledged to process 1" in first
    assert "the log was cut at offset 16" in first


def test_the_same_history_fails_where_every_record_is_flushed(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([1, 2, 3, 4]).run(10).judged(tmp_path, PLAIN)
    assert judged.verdict is Verdict.FAIL
    assert "vanished" in judged.anomalies
    assert UNFLUSHED_LOSS not in judged.anomalies


def test_nothing_is_reported_where_nothing_was_lost(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([]).run(10).judged(tmp_path, CONTRACT)
    assert (judged.verdict, judged.anomalies) == (Verdict.PASS, {})


@pytest.mark.parametrize("position", [-(2**63), 2**63 - 1])
def test_no_offset_that_a_client_reports_is_too_far_out_to_judge_the_loss(tmp_path: Path, position: int) -> None:
    log, other = Log().run(20), Book("orders-1", next_op=10**6)
    log.book.add("end", (log.now, log.now + 1), position, process=60)
    log.book.send([77], position, (log.now + 2, log.now + 3), process=60)
    other.add("end", (log.now + 4, log.now + 5), position, process=61)
    other.send([78], position, (log.now + 6, log.now + 7), process=61)
    log.book.rows += other.rows
    log.now += 10
    judged = log.power_loss([1, 2]).run(10).judged(tmp_path, CONTRACT)
    assert judged.anomalies[UNFLUSHED_LOSS] > 0


@pytest.mark.parametrize("again", [0, 2, 30])
def test_each_of_two_losses_may_take_its_tail(tmp_path: Path, again: int) -> None:
    log = Log().run(20).power_loss([1, 2]).run(again).power_loss([1, 2][:again]).run(10)
    judged = log.judged(tmp_path, CONTRACT)
    assert judged.unknown == ()
    assert judged.verdict is Verdict.PASS
    assert judged.anomalies == {UNFLUSHED_LOSS: 4 if again else 2}


@pytest.mark.parametrize("stage", [None, "inject"])
def test_a_loss_of_power_need_not_be_proved(tmp_path: Path, stage: str | None) -> None:
    """That of ``power-loss-in-write`` is that a process ended at a change; without one the power is lost as well."""
    log = Log().run(20).power_loss([1, 2], took_effect=False, stage=stage).run(10)
    assert log.judged(tmp_path, CONTRACT).anomalies == {UNFLUSHED_LOSS: 2}


OUTAGE = "outage-power-loss"


def test_in_an_outage_the_one_alone_that_serves_may_lose_what_is_not_flushed(tmp_path: Path) -> None:
    log = Log().run(20).struck("kill", "n1", 15).struck("kill", "n2", 15)
    judged = log.power_loss([1, 2], targets=["n3"], fault=OUTAGE).run(10).judged(tmp_path, CONTRACT)
    assert judged.anomalies == {UNFLUSHED_LOSS: 2}


def held(log: Log) -> Log:
    """``n4`` is to stop after an event, and goes on 3 s later; power is lost at 0.2 s."""
    log.first.setdefault("n4", 0)
    return log.struck("hold", "n4", 15, 3_000)


ADD = "membership-add"
ABSENT = {
    "removed again": lambda log: log.joined("n4", 20).struck(ADD, "n4", 15, 100),
    "removed again, without proof of all": lambda log: log.joined("n4", 20).struck(
        ADD, "n4", 15, 100, took_effect=False
    ),
    "added while all others lose power": lambda log: log.joined("n4", 20).struck(ADD, "n4", 15),
    "added later": lambda log: log.joined("n4", 5_000).struck(ADD, "n4", 4_900),
    "dead": lambda log: log.joined("n4", 0).struck("kill", "n4", 15),
    "dead, and started again afterwards": lambda log: log.joined("n4", 0).struck("kill", "n4", 15, 2_000),
    "stopped": lambda log: log.joined("n4", 0).struck("stop", "n4", 15),
    "dead by half a fault": lambda log: log.joined("n4", 0).struck("restart", "n4", 15, stage="inject"),
}
ABSENT |= {
    "stopped by now": lambda log: held(log.wrote("n4", 120)),
    "stopped, who knows when": lambda log: held(log),
    "killed and stopped": lambda log: held(log.wrote("n4", 900, life=2)),
    "stopped, and going on as it is healed": lambda log: held(log.wrote("n4", 2_980)),
    "stopped and not healed": lambda log: log.joined("n4", 0).wrote("n4", 900).struck("hold", "n4", 15),
    "of no life that is known": lambda log: held(log.joined("n4", 4_000).wrote("n4", 10, life=0).wrote("n4", 900, 0)),
    "alive with a full disk": lambda log: log.joined("n4", 0).wrote("n4", 900).struck("disk-full", "n4", 15, 3_000),
}
PRESENT = {
    "to be stopped later": lambda log: held(log.wrote("n4", 900)),
    "never stopped": lambda log: held(log.wrote("n4", 100).wrote("n4", 900).wrote("n4", 2_990).wrote("n4", 3_500)),
    "a server since the beginning": lambda log: log.joined("n4", 0),
    "a server before it was to be added": lambda log: log.joined("n4", 10).struck(
        ADD, "n4", 15, 100, took_effect=False
    ),
    "removed, and back": lambda log: log.joined("n4", 0).struck("membership-remove", "n4", 15, 100),
    "dead, and back": lambda log: log.joined("n4", 0).struck("kill", "n4", 15, 100),
    "dead by half a fault, and back": lambda log: log.joined("n4", 0).struck("restart", "n4", 15, 16, stage="inject"),
    "to be dead by a fault without a target": lambda log: log.joined("n4", 0).struck("kill", "n4", 15, stage="target"),
    "cut off": lambda log: log.joined("n4", 0).struck("partition-one", "n4", 15),
}


@pytest.mark.parametrize("make", ABSENT.values(), ids=ABSENT)
def test_a_server_that_does_not_serve_need_not_lose_its_power(tmp_path: Path, make: Callable[[Log], Log]) -> None:
    judged = make(Log().run(20)).power_loss([1, 2]).run(10).judged(tmp_path, CONTRACT)
    assert judged.anomalies == {UNFLUSHED_LOSS: 2}


@pytest.mark.parametrize("make", PRESENT.values(), ids=PRESENT)
def test_any_other_that_keeps_its_power_has_all(tmp_path: Path, make: Callable[[Log], Log]) -> None:
    judged = make(Log().run(20)).power_loss([1, 2]).run(10).judged(tmp_path, CONTRACT)
    assert UNFLUSHED_LOSS not in judged.anomalies
    assert {"vanished", "inconsistent-offset"} & set(judged.anomalies)


def with_nameless_end(after: int, *, lost: int = 0) -> Log:
    """A log end beyond what anyone knows by value was reported before the loss: ``after`` records more."""
    log = Log().run(20)
    log.book.add("end", (log.now, log.now + 1), len(log.values) + after, process=8)
    log.now += 2
    return log.power_loss([1, 2][:lost]).run(10)


@pytest.mark.parametrize("lost", [0, 2])
def test_records_that_only_an_end_speaks_of_may_go(tmp_path: Path, lost: int) -> None:
    judged = with_nameless_end(4 - lost, lost=lost).judged(tmp_path, ENDS)
    assert (judged.verdict, judged.anomalies) == (Verdict.PASS, {UNFLUSHED_LOSS: lost} if lost else {})


def test_but_not_more_of_them_than_is_in_memory(tmp_path: Path) -> None:
    judged = with_nameless_end(5).judged(tmp_path, ENDS)
    assert judged.verdict is Verdict.FAIL
    assert {"real-time-order", "end-too-low", "nonmonotonic-end"} & set(judged.anomalies)


def spanning(log: Log) -> Log:
    """A record whose operation began before the loss that follows, and ended long after it."""
    log.book.send([700], len(log.values), (log.now - 1, log.now + 1_050), process=7)
    log.values.append(700)
    return log


def test_what_an_operation_that_spans_the_loss_acknowledged_may_go(tmp_path: Path) -> None:
    """As one message of several, it may have been acknowledged before."""
    judged = spanning(Log().run(20)).power_loss([1, 2]).run(10).judged(tmp_path, CONTRACT)
    assert (judged.verdict, judged.anomalies.keys()) == (Verdict.PASS, {UNFLUSHED_LOSS})


def test_what_such_an_operation_wrote_after_the_loss_is_no_proof_against_the_cut(tmp_path: Path) -> None:
    log = Log().run(20)
    begun = log.now - 1
    log.power_loss([1, 2])
    log.book.send([700], len(log.values), (begun, log.now - 50), process=7)
    log.values.append(700)
    judged = log.run(10).judged(tmp_path, CONTRACT)
    assert (judged.verdict, judged.anomalies.keys()) == (Verdict.PASS, {UNFLUSHED_LOSS})


def unread(log: Log, *, ended: int) -> Log:
    """No one polled the last records. Two went; an operation of ``ended`` milliseconds put another in their place."""
    at = len(log.values)
    for value in (601, 602, 603):
        log.book.send([value], len(log.values), (log.now, log.now + 2), process=6)
        log.values.append(value)
        log.now += 10
    begun = log.now - 3
    log.power_loss([2, 1])
    log.book.send([700], at + 1, (begun, begun + ended), process=7)
    log.values.append(700)
    return log


def test_what_such_an_operation_wrote_in_the_place_of_another_shows_that_that_one_went(tmp_path: Path) -> None:
    """Nothing else does, as no one reads them (for which the contract accuses: ``unseen``)."""
    judged = unread(Log().run(20), ended=1_050).run(10).judged(tmp_path, CONTRACT, read=False)
    assert judged.anomalies.keys() == {UNFLUSHED_LOSS, "unseen"}
    assert judged.anomalies[UNFLUSHED_LOSS] == 2


def test_but_not_one_that_ended_before_the_loss(tmp_path: Path) -> None:
    judged = unread(Log().run(20), ended=1).run(10).judged(tmp_path, CONTRACT, read=False)
    assert "inconsistent-offset" in judged.anomalies


@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("an older one", lambda: Log().run(20).power_loss([12])),
        ("a hole: what came after it is there", lambda: Log().run(20).power_loss([2])),
        ("one server kept its power", lambda: Log().run(20).power_loss([1, 2], targets=["n1", "n2"])),
        ("the loss found no target", lambda: Log().run(20).power_loss([1, 2], took_effect=False, stage="target")),
        ("an outage, in which one alone loses its power", lambda: Log().run(20).power_loss([1, 2], fault=OUTAGE)),
        ("it was acknowledged after the loss", lambda: Log().run(20).power_loss([1, 2], at=100)),
    ],
)
def test_nothing_else_may_go(tmp_path: Path, why: str, make: object) -> None:
    assert callable(make)
    log: Log = make()
    judged = log.run(10).judged(tmp_path, CONTRACT)
    assert judged.verdict is Verdict.FAIL, why
    assert UNFLUSHED_LOSS not in judged.anomalies
    assert {"vanished", "inconsistent-offset"} & set(judged.anomalies)


def test_one_more_than_is_in_memory_may_not_go(tmp_path: Path) -> None:
    judged = Log().run(20).power_loss([1, 2, 3, 4, 5]).run(10).judged(tmp_path, CONTRACT)
    assert judged.verdict is Verdict.FAIL
    assert judged.anomalies[UNFLUSHED_LOSS] == 4
    assert any("offset 15 of orders-0" in one.claim for one in judged.findings if one.anomaly == "vanished")


def test_a_record_that_moved_has_not_gone(tmp_path: Path) -> None:
    log = Log().run(20).power_loss([1, 2])
    log.values.append(20)
    judged = log.run(10).judged(tmp_path, CONTRACT)
    assert judged.verdict is Verdict.FAIL
    assert UNFLUSHED_LOSS not in judged.anomalies


def test_what_else_is_wrong_before_and_after_the_cut_is_found(tmp_path: Path) -> None:
    before = Log().run(10)
    before.book.send([500], 3, (before.now - 4, before.now - 1), process=7)
    judged = before.run(10).power_loss([1, 2]).run(10).judged(tmp_path / "a", CONTRACT)
    assert judged.anomalies.keys() >= {UNFLUSHED_LOSS, "inconsistent-offset"}
    after = Log().run(20).power_loss([1, 2]).run(10)
    after.book.send([500], 19, (after.now - 4, after.now - 1), process=7)
    judged = after.run(2).judged(tmp_path / "b", CONTRACT)
    assert judged.anomalies.keys() >= {UNFLUSHED_LOSS, "inconsistent-offset"}


def test_a_contract_that_flushes_each_message_allows_nothing() -> None:
    assert PLAIN.tolerate_unflushed(1) == PLAIN
    assert CONTRACT.tolerates(UNFLUSHED_LOSS)
    assert CONTRACT.unflushed == M - 1
    with pytest.raises(ValueError, match="number of records"):
        Contract(unflushed=-1)


@pytest.mark.parametrize("contract", [CONTRACT, ENDS], ids=["ends may be stale", "linearizable ends"])
def test_an_end_below_what_rightly_went_is_not_too_low(tmp_path: Path, contract: Contract) -> None:
    log = Log().run(20)
    for row in log.book.rows:
        row["leader_epoch"] = 1
    log.power_loss([1, 2, 3, 4])
    log.book.add("end", (log.now - 5, log.now - 4), 16, leader_epoch=2, process=6)
    judged = log.run(10).judged(tmp_path, contract)
    assert judged.anomalies == {UNFLUSHED_LOSS: 4}
    assert "end-too-low" in {one.check for one in judged.examined}
