"""Leaders, controllers and epochs: a history of each anomaly, its nearest legal neighbour, and an oracle over pairs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Finding
from assay.checkers.servers.leadership import OWNERSHIP, OWNERSHIP_ANOMALIES

from helpers.judging import judge, opened
from helpers.log_histories import Row, write


def event(node: str, seq: int, name: str, **given: Any) -> Row:
    return {
        "time": given.pop("time", seq),
        "node": node,
        "incarnation": given.pop("incarnation", 1),
        "seq": seq,
        "event": name,
        "detail": "{}",
        **given,
    }


def append(node: str, seq: int, epoch: int, **given: Any) -> Row:
    return event(node, seq, "first-append-in-epoch", **{"key": "orders-0", "epoch": epoch, "position": 7, **given})


def control(node: str, seq: int, epoch: int, **given: Any) -> Row:
    return event(node, seq, "became-controller", controller_epoch=epoch, **given)


def obey(node: str, seq: int, epoch: int, **given: Any) -> Row:
    return event(node, seq, "request-obeyed", controller_epoch=epoch, **given)


def zookeeper(zxid: int, epoch: int, **given: Any) -> Row:
    return event("z1", zxid, "written", zxid=zxid, controller_epoch=epoch, **given)


def found(folder: Path, events: list[Row]) -> list[Finding]:
    with opened(write(folder / "history", [], events=events)) as engine:
        reported = []
        for family in OWNERSHIP:
            for check in family.checks:
                create_views(engine, check.views)
                reported += read_findings(engine, check)
        return reported


HAVE = [
    ("two-leaders", [append("n1", 1, 3), append("n2", 9, 3)], [append("n1", 1, 3), append("n2", 9, 4)],
     "n1 and n2 both accepted appends to orders-0 as its leader in epoch 3"),
    ("two-leaders", [append("n1", 1, 3), append("n2", 9, 3)], [append("n1", 1, 3), append("n2", 9, 3, key="orders-1")],
     "n1 and n2"),
    ("two-leaders", [append("n1", 1, 3, key="orders#2-0"), append("n2", 9, 3, key="orders#2-0")],
     [append("n1", 1, 3, key="orders#0-0"), append("n2", 9, 3, key="orders#0-0")], "appends to orders#2-0"),
    ("two-controllers", [control("n1", 1, 5), control("n3", 1, 5)], [control("n1", 1, 5), control("n3", 1, 6)],
     "n1 and n3 both became the controller of epoch 5"),
    ("two-controllers", [control("n1", 1, 5), control("n1", 1, 5, incarnation=2)],
     [control("n1", 1, 5), control("n1", 1, 6, incarnation=2)], "in two of its lives"),
    ("stale-epoch-obeyed", [obey("n1", 1, 5), obey("n1", 2, 4)],
     [obey("n1", 1, 5), obey("n1", 2, 4, incarnation=2)], "n1 obeyed a controller of epoch 4 (event 2 of its life 1)"),
    ("stale-epoch-obeyed", [obey("n1", 1, 5), obey("n1", 2, 4)],
     [obey("n1", 1, 5, time=1), obey("n2", 2, 4, time=99)], "after it had obeyed one of epoch 5"),
    ("stale-epoch-obeyed", [zookeeper(10, 2), zookeeper(11, 1)], [zookeeper(10, 1), zookeeper(11, 2, time=0)],
     "The write with zxid 11"),
]  # fmt: skip


@pytest.mark.parametrize(("anomaly", "bad", "good", "words"), HAVE, ids=[f"{i}-{h[0]}" for i, h in enumerate(HAVE)])
def test_it_is_found_and_its_neighbour_is_not(
    tmp_path: Path, anomaly: str, bad: list[Row], good: list[Row], words: str
) -> None:
    (finding,) = found(tmp_path / "bad", bad)
    assert finding.anomaly == anomaly
    assert words in finding.claim
    assert finding.time is not None
    assert found(tmp_path / "good", good) == []


def test_times_of_nodes_do_not_matter(tmp_path: Path) -> None:
    """Events get the same findings whatever the clocks of their nodes show."""
    rng = random.Random(5)
    rows = [bad for _, bad, _, _ in HAVE for bad in bad]
    for number, row in enumerate(rows):
        row = rows[number] = dict(row)
        row["time"] = rng.randint(-(10**12), 10**12)
    reported = {(finding.anomaly, finding.claim) for finding in found(tmp_path / "a", rows)}
    for row in rows:
        row["time"] = rng.randint(-(10**12), 10**12)
    assert reported == {(finding.anomaly, finding.claim) for finding in found(tmp_path / "b", rows)}
    assert {anomaly for anomaly, _ in reported} == set(OWNERSHIP_ANOMALIES)


def test_random_events_get_the_answers_of_loops_over_pairs(tmp_path: Path) -> None:
    rng = random.Random(6)
    events = []
    for seq in range(3000):
        node, life = f"n{rng.randint(1, 5)}", rng.randint(1, 30)
        make = rng.choice((append, control, obey))
        high = {append: 400, control: 2000, obey: 12}[make]
        # mostly rising, so that many lives obey without a fall
        epoch = seq * high // 3000 + rng.choice((0, 0, 0, 1))
        events.append(make(node, seq, epoch, incarnation=life, time=rng.randint(0, 99)))
    events += [zookeeper(zxid, zxid // 10 - (zxid % 97 == 0)) for zxid in range(1000)]
    appends = [row for row in events if row["event"] == "first-append-in-epoch"]
    controls = [row for row in events if row["event"] == "became-controller"]
    obeyed = [row for row in events if row["event"] == "request-obeyed"]
    written = [row for row in events if row["event"] == "written"]
    leaders = {
        (a["key"], a["epoch"]) for a in appends for b in appends if a["epoch"] == b["epoch"] and a["node"] != b["node"]
    }
    controllers = {
        a["controller_epoch"]
        for a in controls
        for b in controls
        if a["controller_epoch"] == b["controller_epoch"]
        and (a["node"], a["incarnation"]) != (b["node"], b["incarnation"])
    }
    stale: set[Any] = {
        (b["node"], b["incarnation"], b["seq"])
        for a in obeyed
        for b in obeyed
        if (a["node"], a["incarnation"]) == (b["node"], b["incarnation"])
        and a["seq"] < b["seq"]
        and a["controller_epoch"] > b["controller_epoch"]
    }
    stale |= {
        (None, None, b["zxid"])
        for a in written
        for b in written
        if a["zxid"] < b["zxid"] and a["controller_epoch"] > b["controller_epoch"]
    }
    assert min(len(leaders), len(controllers), len(stale)) > 10
    with opened(write(tmp_path / "history", [], events=events)) as engine:
        for family in OWNERSHIP:
            create_views(engine, family.checks[0].views)

        def rows(sql: str) -> set[Any]:
            return {tuple(row.values()) for row in engine.rows(sql)}

        assert rows("select key, epoch from found_two_leaders") == leaders
        assert rows("select epoch from found_two_controllers") == {(epoch,) for epoch in controllers}
        assert rows("select node, incarnation, place from found_stale_epoch_obeyed") == stale


def test_a_history_without_such_events_owes_no_data(tmp_path: Path) -> None:
    judged = judge(write(tmp_path / "a", [], events=[append("n1", 1, 3)]), Contract())
    assert {"two-leaders"} == {one.check for one in judged.examined} & set(OWNERSHIP_ANOMALIES)
    assert not [reason for reason in judged.unknown if "no data" in reason]
