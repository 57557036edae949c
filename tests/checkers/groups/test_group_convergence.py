"""A group that does not settle after the last heal, its nearest legal neighbours, and an oracle over random drains."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from assay.checkers.check import create_views, read_findings
from assay.checkers.groups.group_convergence import UNSETTLED_GROUP
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import register_contract

from helpers.judging import opened
from helpers.log_histories import Row, effect, write
from helpers.looks import fault

SECOND = 1_000_000_000
CONTRACT = Contract(group_deadline=10)


class Drain:
    """The end of a run of a group, by hand. Times are seconds."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.op = 0

    def add(self, kind: str, key: str, at: float, **given: object) -> int:
        lasts = 0 if given.get("outcome") == "info" else 0.1
        call = int(at * SECOND)
        self.rows.append(effect(self.op, 0, kind, key, call, call + int(lasts * SECOND) if lasts else None, **given))
        self.op += 1
        return self.op - 1

    def sentinel(self, key: str, at: float, offset: int = 50, **given: object) -> None:
        self.add("append", key, at, position=offset, value=-1, phase="sentinel", process=0, worker="s", **given)

    def owns(self, key: str, at: float, group: str = "workers", assignment: int = 1) -> None:
        self.add("acquire", key, at, group=group, owner="m", assignment=assignment, process=3, worker="o")

    def polls(self, first: int, last: int, group: str = "workers", every: int = 1, process: int = 1) -> None:
        for at in range(first, last + 1, every):
            self.add("idle", group, at + 0.2, group=group, phase="drain", process=process, worker=f"w{process}")

    def reads(self, key: str, at: float, end: int = 51, group: str = "workers", **given: object) -> None:
        given = {"phase": "drain", **given}
        self.add("observe-end", key, at, position=end, group=group, assignment=1, process=2, worker="r", **given)

    def in_order(self) -> list[Row]:
        rows = sorted(self.rows, key=lambda row: row["call"])
        return [{**row, "op": number} for number, row in enumerate(rows)]


def found(folder: Path, drain: Drain, faults: Sequence[Row] = (), contract: Contract = CONTRACT) -> dict[str, str]:
    """Key to claim."""
    with opened(write(folder, drain.in_order(), faults=list(faults))) as engine:
        register_contract(engine, contract)
        create_views(engine, UNSETTLED_GROUP.views)
        claims = {}
        for finding in read_findings(engine, UNSETTLED_GROUP):
            assert finding.key not in claims
            claims[str(finding.key)] = finding.claim
        return claims


def drained(last: int = 16, owns: bool = True) -> Drain:
    """Two partitions of a topic; the group reads one of them."""
    made = Drain()
    made.owns("orders-0", 0)
    if owns:
        made.owns("orders-1", 0.5)
    made.sentinel("orders-0", 2)
    made.sentinel("orders-1", 3)
    made.polls(4, last)
    made.reads("orders-0", 5)
    return made


def test_a_partition_that_members_never_read_to_its_end_is_found(tmp_path: Path) -> None:
    claims = found(tmp_path / "owned", drained())
    assert list(claims) == ["orders-1"]
    assert (
        "No member of workers read orders-1 up to offset 50, acknowledged at 3.100 s, by 16.200 s" in claims["orders-1"]
    )
    assert "given out 0 times in that time, last given to process 3" in claims["orders-1"]
    assert "and had no owner" in found(tmp_path / "unowned", drained(owns=False))["orders-1"]
    late = drained(last=20)
    late.reads("orders-1", 17)
    assert "by 17.100 s" in found(tmp_path / "late", late)["orders-1"]
    part = drained()
    part.reads("orders-1", 6, end=50)
    assert found(tmp_path / "not to its end", part)


def test_a_group_that_never_got_anything_is_found_where_there_is_one_topic(tmp_path: Path) -> None:
    def stuck(*others: str) -> Drain:
        made = Drain()
        for number, key in enumerate(["orders-0", *others]):
            made.sentinel(key, number)
        made.polls(4, 16)
        return made

    assert list(found(tmp_path / "one", stuck("orders-1"))) == ["orders-0", "orders-1"]
    assert not found(tmp_path / "two", stuck("payments-0")), "it is not known which is the group's"


def test_its_legal_neighbours_are_not(tmp_path: Path) -> None:
    def none(name: str, drain: Drain, faults: Sequence[Row] = ()) -> None:
        assert not found(tmp_path / name, drain, faults), name

    good = drained()
    good.reads("orders-1", 13)
    none("read at the deadline", good)
    surplus = drained(last=18)
    surplus.polls(4, 18, process=7)
    surplus.reads("orders-1", 6)
    none("surplus members own nothing", surplus)
    none("cut short", drained(last=12))
    pause = drained(last=8)
    pause.polls(12, 20)
    none("no one polled for a while", pause)
    none("a late recovery", drained(), fault([("injected", 0), ("healed", 1), ("recovered", 8)]))
    none("a fault that is there", drained(), fault([("injected", 0)]))
    lost = drained()
    lost.add("idle", "workers", 6.5, group="workers", phase="drain", process=9, worker="w9", outcome="info")
    lost.add("idle", "workers", 9.5, group="workers", phase="drain", process=10, worker="w9")
    none("a member that was lost", lost)
    elsewhere = drained()
    elsewhere.reads("orders-1", 6)
    elsewhere.sentinel("payments-0", 2.5)
    none("another group's topic", elsewhere)
    failed = drained()
    failed.rows = [row for row in failed.rows if (row["kind"], row["key"]) != ("append", "orders-1")]
    failed.sentinel("orders-1", 3, outcome="fail")
    none("no sentinel", failed)
    main = drained()
    for row in main.rows:
        row["phase"] = "main" if row["kind"] == "idle" else row["phase"]
    none("not at the end of a run", main)


def test_a_send_of_unknown_outcome_is_no_members(tmp_path: Path) -> None:
    drain = drained()
    drain.add("append", "orders-0", 8.5, phase="sentinel", outcome="info", process=20, worker="w20")
    assert found(tmp_path, drain)


def test_random_drains_get_the_answers_of_a_loop(tmp_path: Path) -> None:
    rng = random.Random(3)
    made, expected = Drain(), set()
    for number in range(60):
        topic, group = f"t{number}", f"g{number}"
        first, gaps = rng.randrange(1, 20), rng.choice((0.0, 0.1, 0.4))
        calls = [first, *(first + step for step in range(1, rng.randrange(2, 24)) if rng.random() >= gaps)]
        partitions = range(rng.choice((1, 2, 3)))
        made.owns(f"{topic}-0", 0, group)
        reached = {}
        sent = {}
        for partition in partitions:
            key = f"{topic}-{partition}"
            sent[key] = first + rng.choice((-1, 0, 3))
            made.sentinel(key, sent[key])
            if rng.random() < 0.6:
                reached[key] = rng.choice(calls) + rng.choice((0.3, 0.6))
                made.reads(key, reached[key], group=group)
        for call in calls:
            made.add("idle", group, call + 0.2, group=group, phase="drain", process=1000 + number, worker=f"w{number}")
        polls = sorted([*(call + 0.2 for call in calls), *reached.values()])
        stretches = [[polls[0]]]
        for poll in polls[1:]:
            if poll - stretches[-1][-1] > 2.5:
                stretches.append([])
            stretches[-1].append(poll)
        for key, at in sent.items():
            for stretch in stretches:
                since = max(at + 0.1, stretch[0])
                read = reached.get(key, 10**9) + 0.1
                if stretch[-1] > at + 0.1 and since + 10 <= stretch[-1] and read > since + 10:
                    expected.add((key, round(since, 3)))
    with opened(write(tmp_path / "history", made.in_order())) as engine:
        register_contract(engine, CONTRACT)
        create_views(engine, UNSETTLED_GROUP.views)
        rows = engine.rows("select key, since from found_unsettled_group")
    assert {(row["key"], round(row["since"] / SECOND, 3)) for row in rows} == expected
    assert len(expected) > 10
