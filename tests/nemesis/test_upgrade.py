"""The fault ``upgrade``: a restart with the image that the system names."""

from __future__ import annotations

from assay.nemesis.engine.reporter import FaultPhase
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep
from assay.nemesis.schedule.target import parse_target

from helpers.nemesis_fakes import FAULTS, FakeCluster, FakeSystem, Play, run

SCHEDULE = FaultSchedule(1, (FaultStep(2.0, "upgrade", parse_target("n2"), 5.0),))


def test_it_is_proved_by_a_new_process_and_the_new_image() -> None:
    play = Play(SCHEDULE)
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is True
    assert row.detail["evidence"]["n2"]["image"] == {"wanted": "new", "found": "new"}


def test_a_node_that_keeps_its_old_image_proves_nothing() -> None:
    play = Play(SCHEDULE)
    play.cluster.node("n2").deaf = {"change_image"}
    play.play()
    row = play.row(1, FaultPhase.HEALED)
    assert row.took_effect is False
    assert "its container has the image old" in row.detail["reason"]


def test_it_is_possible_if_one_role_has_a_new_image_and_strikes_no_node_of_another() -> None:
    play = Play(SCHEDULE)
    play.cluster.node("n2").no_image = "the system names no new image for its role"
    assert run(FAULTS["upgrade"].probe(play.cluster, play.system)) is None
    play.play()
    reason = play.row(1, FaultPhase.FAILED).detail["reason"]
    assert "the image of n2 cannot be changed: the system names no new image for its role" in reason
    assert "--nemesis-target=one:ROLE" in reason
    assert not any("terminate" in call for call in play.cluster.node("n2").calls)


def test_where_no_node_has_a_new_image_it_is_refused() -> None:
    cluster = FakeCluster(3)
    for node in cluster.servers:
        node.no_image = "the system names no new image for its role"
    reason = run(FAULTS["upgrade"].probe(cluster, FakeSystem(cluster)))
    assert reason == "the image of n1 cannot be changed: the system names no new image for its role"
