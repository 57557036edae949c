"""Tests what had not come to its end by its deadline, and the nearest cluster that had, or could not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract
from assay.checkers.judging.verdict import Judgement, Verdict
from assay.checkers.liveness.family import LIVENESS, LIVENESS_ANOMALIES

from helpers.judging import judge, opened
from helpers.log_histories import Book, write
from helpers.looks import (
    ALWAYS,
    CREATED,
    KEY,
    TOPIC,
    WALL_MS,
    Change,
    Row,
    adding,
    all_of,
    changing,
    cluster_of,
    dead,
    fault,
    looked,
    packed,
    without,
)
from helpers.nightly import by_night


def judged(folder: Path, looks: list[Row], effects: list[Row] | None = None, **given: Any) -> Judgement:
    contract = given.pop("contract", Contract(forbidden=LIVENESS_ANOMALIES))
    return judge(write(folder, effects or [], looks=looks), contract, **given)


def found(
    folder: Path,
    looks: list[Row],
    effects: list[Row] | None = None,
    faults: list[Row] | None = None,
    contract: Contract | None = None,
) -> dict[tuple[str, str], str]:
    """Anomaly and key to claim; one finding each. By the checks of this family alone."""
    history = write(folder, effects or [], looks=looks, faults=faults or [])
    claims: dict[tuple[str, str], str] = {}
    with opened(history) as engine:
        register_contract(engine, contract or Contract())
        create_views(engine, LIVENESS.views)
        for check in LIVENESS.checks:
            create_views(engine, check.views)
            for finding in read_findings(engine, check):
                assert (finding.anomaly, finding.key) not in claims
                claims[finding.anomaly, str(finding.key)] = finding.claim
    return claims


MOVING = {"what": "move", "key": KEY, "replicas": "1,2,4", "removing": ""}
FOURTH: tuple[Row, ...] = (
    {"what": "broker", "node": "n4", "broker": 4, "zxid": 14},
    {"what": "answer", "node": "n4"},
    {"what": "role", "node": "n4", "key": KEY, "epoch": 4, "high_watermark": 0},
    {"what": "folder", "node": "n4", "key": KEY, "zxid": CREATED},
)

FLUSHED: Row = {"what": "flushed", "node": "n2", "key": KEY, "flushed": 90, "log_end": 100, "flush_ms": 1_000}
GROWN = all_of(changing("partition", {"replicas": "1,2,4,3"}), adding(MOVING, *FOURTH))
OUT = changing("partition", {"members": "1,2"})
DEAF = changing("role", {"epoch": 3}, node="n3")
GONE = all_of(without("topic"), without("partition"), without("known"), without("folder"), without("role"))
ROUTED: tuple[Row, ...] = tuple(
    {"what": "routed", "key": KEY, "node": f"n{n}", "leader": 1, "replicas": "1,2,3", "members": "1,2,3"}
    for n in (1, 2, 3)
)
ELSEWHERE: Row = {"what": "routed", "key": "other-0", "node": "n2", "leader": 1, "replicas": "1,2", "members": "1,2"}
OLD = {"what": "folder", "key": "gone-1", "node": "n2", "zxid": 40}
SEGMENTS: tuple[Row, ...] = (
    {"what": "segment", "node": "n2", "key": KEY, "base_offset": 0, "end_offset": 50, "size": 900,
     "timestamp": WALL_MS - 10_000},
    {"what": "segment", "node": "n2", "key": KEY, "base_offset": 50, "end_offset": 90, "size": 900,
     "timestamp": WALL_MS + 3_600_000},
    {"what": "segment", "node": "n2", "key": KEY, "base_offset": 90, "size": 100},
)  # fmt: skip
BRIEF = changing("topic", {"retention_ms": 5_000})
FOR_EVER = 2**63 - 1
"""As Kafka's own settings have it."""
SMALL = changing("topic", {"retention_bytes": 1_000})


WRONG: tuple[tuple[str, Change, str], ...] = (
    ("unfinished-move", GROWN, "The move of orders-0 to 1,2,4 was under way from 0.100 s to 40.000 s"),
    (
        "unfinished-move",
        all_of(
            changing("partition", {"replicas": "1,2,4", "members": "1,2,4"}),
            adding({**MOVING, "removing": "3"}, *FOURTH),
        ),
        "to be removed, although it has a leader",
    ),
    (
        "unfinished-move",
        changing("partition", {"replicas": "1,2", "members": "1,2"}),
        "N3 had files of orders-0 from 0.100 s to 40.000 s, although that was on",
    ),
    ("unregistered", without("broker", node="n3"), "n3 answered and was not registered from 0.100 s to 40.000 s"),
    ("no-rejoin", OUT, "n3 did not get back into the in-sync set of orders-0 from 0.100 s to 40.000 s"),
    ("disobeyed-state", DEAF, "but n3 is still in epoch 3"),
    ("disobeyed-state", without("role", node="n3"), "but n3 has no replica of orders-0"),
    (
        "disobeyed-settings",
        changing("role", {"settings": 78}, node="n3"),
        "N3 did not go by the settings that orders has",
    ),
    (
        "stale-metadata",
        all_of(adding(*ROUTED), changing("routed", {"leader": 3}, node="n2")),
        "N2 answered leader",
    ),
    ("stale-metadata", all_of(adding(*ROUTED), changing("routed", {"members": "1,2"}, node="n3")), "N3 answered"),
    ("stale-metadata", adding(ELSEWHERE), "N2 answered no such partition for orders-0"),
    (
        "late-high-watermark",
        changing("role", {"log_end": 101}, node="n1"),
        "N1, the leader of orders-0 in epoch 4, had the high watermark 100 and the log end 101 from 0.100 s",
    ),
    (
        "late-flush",
        adding(FLUSHED),
        "N2 had a log of orders-0 that ends at offset 100 and said that it is on its disk up",
    ),
    (
        "late-flush",
        adding({**FLUSHED, "flushed": 100, "unsynced": 7}),
        "all of it is on its disk, where a loss of power could have taken 7 bytes",
    ),
    ("undeleted-topic", adding({"what": "settings", "key": "gone"}), "The settings of gone were in ZooKeeper from"),
    ("undeleted-topic", adding({"what": "deletion", "key": TOPIC}), "Orders was to be deleted from 0.100 s"),
    ("undeleted-topic", adding({"what": "deletion", "key": "gone"}), "Gone was to be deleted"),
    ("undeleted-topic", adding(OLD), "N2 had files of gone-1 from 0.100 s to 40.000 s"),
    ("undeleted-topic", changing("folder", {"zxid": 40}, node="n2"), "N2 had files of orders-0"),
    ("undeleted-topic", adding({"what": "known", "key": "gone", "node": "n2"}), "N2 still knew gone"),
    ("retention-undone", all_of(BRIEF, adding(*SEGMENTS)), "from offset 0 to 50"),
    ("retention-undone", all_of(SMALL, adding(*SEGMENTS)), "by a retention of 1000 bytes"),
)
LEGAL: tuple[Change, ...] = (
    lambda seen: seen,
    all_of(changing("partition", {"replicas": "1,2,4,3"}), adding(MOVING)),  # its target is dead
    all_of(GROWN, changing("partition", {"leader": -1})),
    all_of(GROWN, dead("n1")),  # the leader is dead
    all_of(changing("partition", {"replicas": "1,2", "members": "1,2"}), without("folder", node="n3")),
    all_of(OUT, changing("partition", {"leader": -1})),  # leader -1, with the damaged last member
    all_of(OUT, dead("n3")),
    all_of(without("answer", node="n3"), without("role", node="n3")),
    all_of(dead("n3"), without("role", node="n3")),
    changing("role", {"epoch": 5}, node="n3"),
    all_of(changing("topic", {"settings": 78}), changing("role", {"settings": 78})),
    adding({"what": "settings", "key": TOPIC}),
    changing("role", {"log_end": 100}),
    changing("role", {"log_end": 101}, node="n2"),  # a follower's mark comes later
    changing("role", {"log_end": 101, "high_watermark": -1}, node="n1"),
    all_of(
        changing("role", {"log_end": 101}, node="n1"),
        dead("n3"),
        changing("partition", {"members": "1,2"}),
    ),
    all_of(changing("role", {"log_end": 101}, node="n1"), adding({"what": "deletion", "key": TOPIC}, MOVING)),
    adding(*ROUTED),
    all_of(adding(*ROUTED), changing("partition", {"leader": -1})),
    all_of(adding(*ROUTED), changing("routed", {"leader": 3}, node="n2"), dead("n2")),
    all_of(adding(*ROUTED), changing("routed", {"leader": 3}, node="n2"), without("answer", node="n2")),
    all_of(adding(*ROUTED, {"what": "deletion", "key": TOPIC}, MOVING), changing("routed", {"leader": 3})),
    all_of(changing("role", {"settings": 78}, node="n3"), adding({"what": "deletion", "key": TOPIC}, MOVING)),
    all_of(changing("topic", {"settings": None}), changing("role", {"settings": None}, node="n3")),
    all_of(adding({"what": "deletion", "key": TOPIC}), dead("n2")),
    all_of(adding({"what": "deletion", "key": TOPIC}), GONE, without("deletion")),
    all_of(adding({"what": "known", "key": "gone", "node": "n2"}), adding({"what": "topic", "key": "gone"})),
    all_of(adding(OLD), dead("n2"), without("known", node="n2")),
    all_of(BRIEF, adding(*SEGMENTS), changing("segment", {"timestamp": WALL_MS + 3_600_000}, base_offset=0)),
    all_of(BRIEF, adding(*SEGMENTS), changing("role", {"high_watermark": 49}, node="n2")),
    all_of(BRIEF, adding(SEGMENTS[0])),  # the active segment
    all_of(changing("topic", {"retention_bytes": 1_001}), adding(*SEGMENTS)),
    all_of(BRIEF, adding(*SEGMENTS), changing("partition", {"leader": -1})),
    all_of(GROWN, adding({"what": "deletion", "key": TOPIC})),  # each waits for the other
    adding({**FLUSHED, "flush_ms": FOR_EVER}),
    all_of(changing("topic", {"retention_ms": FOR_EVER}), adding(*SEGMENTS)),
    all_of(BRIEF, changing("topic", {"retention_check_ms": FOR_EVER}), adding(*SEGMENTS)),
    all_of(BRIEF, adding(*SEGMENTS), changing("segment", {"timestamp": FOR_EVER}, base_offset=0)),
)


def test_what_lasts_longer_than_its_deadline_is_found(tmp_path: Path) -> None:
    wrong = packed([change for _, change, _ in WRONG])
    claims = found(tmp_path / "whole", looked((ALWAYS, wrong)))
    assert sorted((cluster_of(key), anomaly) for anomaly, key in claims) == [
        (number, anomaly) for number, (anomaly, _, _) in enumerate(WRONG)
    ]
    for (anomaly, key), claim in claims.items():
        expected = WRONG[cluster_of(key)]
        assert anomaly == expected[0]
        assert expected[2].lower() in claim.lower().replace(f"c{cluster_of(key)}-", "")


@pytest.mark.parametrize("every", [4, by_night(1)])
def test_a_clock_that_began_again_has_lasted_for_less(tmp_path: Path, every: int) -> None:
    """Any look without it, a restart, a fault healed late, a stall."""
    wrong = packed([change for _, change, _ in WRONG[::every]])
    assert len(found(tmp_path / "whole", looked((ALWAYS, wrong)))) == len(WRONG[::every])
    assert not found(tmp_path / "too late", looked((range(15, 99), wrong)))
    assert not found(tmp_path / "over", looked((range(40), wrong)))
    assert not found(tmp_path / "between", looked((range(15), wrong), (range(16, 99), wrong)))
    restarted = changing("broker", {"zxid": 99}, node="c0-n2")
    assert not found(tmp_path / "restart", looked((ALWAYS, wrong), (range(15, 99), restarted)))
    late = fault([("injected", 1), ("healed", 5), ("recovered", 12)])
    assert not found(tmp_path / "recovered", looked((ALWAYS, wrong)), faults=late)
    assert not found(tmp_path / "unhealed", looked((ALWAYS, wrong)), faults=fault([("injected", 0)]))
    stalled = [row for row in looked((ALWAYS, wrong)) if not 10 < row["look"] < 17]
    for row in stalled:
        row["look"] -= 6 if row["look"] > 10 else 0
    assert not found(tmp_path / "stalled", stalled)


def test_what_cannot_come_to_its_end_or_has_is_not_held_against_it(tmp_path: Path) -> None:
    assert not found(tmp_path, looked((ALWAYS, packed(LEGAL))))


CHANGED: tuple[tuple[Change, Change], ...] = (
        (GROWN, all_of(GROWN, changing("move", {"replicas": "1,4,3"}))),  # another request
        (GROWN, all_of(GROWN, changing("partition", {"epoch": 5}), changing("role", {"epoch": 5}))),
        (OUT, all_of(OUT, changing("partition", {"epoch": 5}), changing("role", {"epoch": 5}))),
        (DEAF, all_of(DEAF, changing("partition", {"epoch": 5}), changing("role", {"epoch": 5}, node="n1"),
                      changing("role", {"epoch": 5}, node="n2"))),
        (all_of(BRIEF, adding(*SEGMENTS)), all_of(changing("topic", {"retention_ms": 6_000}), adding(*SEGMENTS))),
        (adding(OLD), adding({**OLD, "node": "n3"})),

)  # fmt: skip


def test_a_clock_begins_again_with_another_request_epoch_setting_or_place(tmp_path: Path) -> None:
    first, second = packed([one for one, _ in CHANGED]), packed([other for _, other in CHANGED])
    assert not found(tmp_path / "changed", looked((range(15), first), (range(15, 99), second)))
    kept = found(tmp_path / "changed and kept", looked((range(5), first), (range(5, 99), second)))
    assert {cluster_of(key) for _, key in kept} == set(range(len(CHANGED)))


def rising(every: int, until: int = 99) -> list[tuple[range, Change]]:
    """The leader epoch rises by one in each so manieth look."""
    return [
        (range(at, at + 1), changing("partition", {"epoch": 4 + min(at, until) // every, "members": "1,2"}))
        for at in range(41)
    ]


def test_a_state_that_is_written_again_and_again_is_found(tmp_path: Path) -> None:
    claims = found(tmp_path / "for ever", looked(*rising(1)))
    assert claims["restless-state", KEY] == (
        "The leader epoch of orders-0 went on rising, from 20 at 16.000 s to 44 at 40.000 s, although since 0.100 s no "
        "broker had come or gone, no move was under way and no fault in force; the contract's deadline is 30.000 s."
    )
    assert ("restless-state", KEY) in found(tmp_path / "slowly", looked(*rising(7)))
    assert ("restless-state", KEY) not in found(tmp_path / "a balance or two", looked(*rising(12)))
    assert ("restless-state", KEY) not in found(tmp_path / "until soon before", looked(*rising(1, 30)))
    moved = changing("partition", {"replicas": "1,2"})
    assert not found(tmp_path / "moved", looked(*rising(1), (range(15), moved)))
    assert not found(tmp_path / "moving", looked(*rising(1), (range(15, 16), adding(MOVING))))
    restarted = changing("broker", {"zxid": 99}, node="n2")
    assert not found(tmp_path / "restarted", looked(*rising(1), (range(15, 99), restarted)))
    contract = Contract(forbidden=LIVENESS_ANOMALIES, obedience_deadline=8)
    assert found(tmp_path / "eight", looked(*rising(1), seconds=12), contract=contract)


def test_each_deadline_is_the_contracts(tmp_path: Path) -> None:
    quick = looked((ALWAYS, OUT), seconds=9)
    assert not found(tmp_path / "default", quick)
    contract = Contract(forbidden=LIVENESS_ANOMALIES, rejoin_deadline=8)
    claims = found(tmp_path / "eight", quick, contract=contract)
    assert "the contract's deadline is 8.000 s" in claims["no-rejoin", KEY]
    assert not found(
        tmp_path / "others", quick, contract=Contract(forbidden=LIVENESS_ANOMALIES, move_deadline=8, group_deadline=1)
    )
    assert found(tmp_path / "derived", quick, contract=Contract(forbidden=LIVENESS_ANOMALIES, recovery_deadline=8))


def test_size_is_looked_at_by_the_broker_at_its_own_interval(tmp_path: Path) -> None:
    slow = all_of(SMALL, changing("topic", {"retention_check_ms": 20_000}), adding(*SEGMENTS))
    assert not found(tmp_path / "short", looked((ALWAYS, slow)))
    assert ("retention-undone", KEY) in found(tmp_path / "long", looked((ALWAYS, slow), seconds=60))


MOVED = changing("partition", {"replicas": "2,1,3"})


def test_an_acknowledged_move_that_no_one_knows_any_more(tmp_path: Path) -> None:
    def asked(*more: tuple[str, tuple[int, int | None], Row]) -> list[Row]:
        book = Book(KEY)
        book.add("move", (10, 20), None, replicas="3,2,1")
        for kind, when, given in more:
            book.key = given.pop("key", KEY)
            book.add(kind, when, None, **given)
        return book.rows

    wrong = looked((ALWAYS, MOVED))
    claims = found(tmp_path / "forgotten", wrong, asked())
    assert found(tmp_path / "two looks", looked((ALWAYS, MOVED), seconds=1), asked())
    assert not found(tmp_path / "one look", looked((ALWAYS, MOVED), seconds=0), asked())
    assert "Process 0 was promised at 0.020 s that orders-0 moves to 3,2,1" in claims["unfinished-move", KEY]
    assert not found(tmp_path / "there", looked((ALWAYS, changing("partition", {"replicas": "3,2,1"}))), asked())
    later = ("move", (30, 40), {"replicas": "2,1,3"})
    assert not found(tmp_path / "replaced", wrong, asked(later))
    may = ("move", (25, None), {"replicas": "2,1,3", "outcome": "info"})
    assert not found(tmp_path / "may have been replaced", wrong, asked(may))
    rejected = ("move", (30, 40), {"replicas": "2,1,3", "outcome": "fail"})
    assert found(tmp_path / "not replaced", wrong, asked(rejected))
    recreated = ("topic-create", (30, 40), {"key": TOPIC})
    assert not found(tmp_path / "recreated", wrong, asked(recreated))
    phases = [("injected", 1), ("healed", 1), ("recovered", 1)]
    moved = fault(phases, "a fault of one's own", moves_replicas=True)
    assert not found(tmp_path / "a fault", wrong, asked(), faults=moved)
    assert found(tmp_path / "another fault", wrong, asked(), faults=fault(phases, moves_replicas=False))
    failed = fault([("failed", 1)], moves_replicas=True)
    half = [row | {"stage": "inject"} for row in failed] + fault(phases[1:], moves_replicas=True)
    assert not found(tmp_path / "half a fault", wrong, asked(), faults=half)
    assert found(tmp_path / "no target", wrong, asked(), faults=[row | {"stage": "target"} for row in failed])


def test_an_acknowledged_deletion_of_a_topic_that_is_there(tmp_path: Path) -> None:
    def asked(*more: tuple[str, str, tuple[int, int | None], str], made: tuple[int, int] | None = None) -> list[Row]:
        book = Book(TOPIC)
        if made is not None:
            book.add("topic-create", made, None)
        book.add("topic-delete", (10, 20), None)
        for kind, key, when, outcome in more:
            book.key = key
            book.add(kind, when, None, outcome=outcome)
        return book.rows

    claims = found(tmp_path / "there", looked(), asked())
    assert "was acknowledged at 0.020 s, no one made it again" in claims["undeleted-topic", TOPIC]
    assert not found(tmp_path / "gone", looked((ALWAYS, GONE)), asked())
    assert found(tmp_path / "made before", looked(), asked(made=(1, 2)))
    assert not found(tmp_path / "made again", looked(), asked(("topic-create", "orders#2", (30, 40), "ok")))
    assert not found(tmp_path / "perhaps", looked(), asked(("topic-create", TOPIC, (25, None), "info")))
    assert found(tmp_path / "not made", looked(), asked(("topic-create", "orders#2", (30, 40), "fail")))


def test_a_run_that_was_not_looked_at_for_long_enough_is_unknown(tmp_path: Path) -> None:
    short = judged(tmp_path / "short", looked((ALWAYS, OUT), seconds=9))
    assert any("the system was inspected for only 8.900 s" in reason for reason in short.unknown)
    at_rest = looked(seconds=9)
    for row in at_rest:
        if row["what"] == "look":
            row["unsettled"] = 0
    assert not [reason for reason in judged(tmp_path / "rest", at_rest).unknown if "looked at" in reason]


def test_a_history_without_looks_has_nothing_to_be_judged(tmp_path: Path) -> None:
    judgement = judged(tmp_path, [])
    assert sum("has no data for it" in reason for reason in judgement.unknown) == len(LIVENESS_ANOMALIES)


def test_looks_before_the_last_pause_are_not_exposed(tmp_path: Path) -> None:
    pause = 10 * 1_000_000_000
    looks = [
        {**row, "time": row["time"] + pause, "ended": row["ended"] + pause} if row["look"] > 21 else row
        for row in looked(seconds=40)
    ]
    counts = {(one.claims, one.exposed) for one in judged(tmp_path, looks).examined if one.check in LIVENESS_ANOMALIES}
    assert counts == {(41, 20)}


def test_a_run_that_was_cut_short_is_not_judged_by_it(tmp_path: Path) -> None:
    wrong = looked((ALWAYS, OUT))
    assert judged(tmp_path / "whole", wrong).verdict is Verdict.FAIL
    early = judged(tmp_path / "cut", wrong, interrupted=True)
    assert not early.findings
    assert early.verdict is Verdict.UNKNOWN
