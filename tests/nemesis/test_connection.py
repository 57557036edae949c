"""Rules for one connection stay where packets were dropped. If none were, they lie where they were meant to."""

import pytest

from assay.nemesis.engine.reporter import FaultPhase
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import parse_target

from helpers.nemesis_fakes import FakeCluster, Play

SERVERS = ("n1", "n2", "n3")


def play(target: str, silent: set[tuple[str, str]], duration: float = 5.0) -> Play:
    """``silent``: which server gets nothing from whom. n1 leads orders-0."""
    step = FaultStep(2.0, "connection-fetch", parse_target(target), duration, {"way": "answers", "key": "orders-0"})
    made = Play(FaultSchedule(1, (step,)), FakeCluster(3))
    for name in SERVERS:
        made.cluster.node(name).silent = {peer for node, peer in silent if node == name}
    made.play()
    assert made.cluster.untouched
    return made


def cut(done: Play) -> list[str]:
    """The connection that was cut in the end."""
    found: list[str] = done.row(1, FaultPhase.HEALED).detail["evidence"]["cut"]
    return found


def to_each(name: str) -> set[tuple[str, str]]:
    return {(name, peer) for peer in SERVERS if peer != name}


def test_a_follower_is_cut_from_its_leader_where_that_is_heard() -> None:
    done = play("n2", set())
    assert cut(done) == ["n2<-n1:9092"]
    assert "silent" not in done.row(1, FaultPhase.INJECTED).detail["evidence"]
    assert done.at(1, FaultPhase.INJECTED) < 2.2


def test_a_follower_that_its_leader_tells_nothing_is_cut_from_who_does() -> None:
    done = play("n2", {("n2", "n1")})
    assert cut(done) == ["n2<-n3:9092"]
    assert done.row(1, FaultPhase.HEALED).took_effect is True
    assert done.row(1, FaultPhase.INJECTED).detail["evidence"]["silent"] == ["n2 to n1"]


def test_where_no_one_tells_the_follower_anything_another_server_is_cut() -> None:
    done = play("follower:orders-0", to_each("n2") | {("n1", "n2"), ("n3", "n2")})
    assert cut(done) in (["n1<-n3:9092"], ["n3<-n1:9092"])
    row = done.row(1, FaultPhase.HEALED)
    assert row.took_effect is True
    assert row.targets == tuple(done.record.resolved[0].targets) == (cut(done)[0][:2],)


def test_where_half_of_the_time_is_over_it_is_the_one_that_was_asked_for() -> None:
    """It may be silent for the moment; that another one that speaks to no one speaks later is less likely."""
    silent = to_each("n2") | to_each("n1") | to_each("n3")
    done = play("n2", silent, duration=1.0)
    assert cut(done) == ["n2<-n1:9092"]
    assert done.row(1, FaultPhase.INJECTED).detail["evidence"]["silent"] == ["n2 to n1"]


def test_a_server_that_was_named_stays_the_one() -> None:
    done = play("n2", to_each("n2"))
    assert cut(done) == ["n2<-n1:9092"]
    assert done.row(1, FaultPhase.HEALED).took_effect is False


@pytest.mark.parametrize("target", ["n2", "follower:orders-0"])
def test_where_all_are_silent_the_fault_took_no_effect(target: str) -> None:
    done = play(target, {pair for name in SERVERS for pair in to_each(name)})
    row = done.row(1, FaultPhase.HEALED)
    assert row.took_effect is False
    assert done.at(1, FaultPhase.INJECTED) <= 2.0 + 5.0 / 2 + 0.7
