from __future__ import annotations

import pytest

from assay.nemesis.faults.fault import Impact
from assay.nemesis.faults.kill import Kill
from assay.nemesis.faults.process import ServerFault
from assay.nemesis.schedule.catalogue import (
    FaultCatalogue,
    FaultError,
    FaultNameError,
    explain_unsuitable,
    find_missing_roles,
)
from assay.system_under_test.deployment import Broker

from helpers.nemesis_fakes import FAULTS


def test_every_fault_goes_by_its_own_name() -> None:
    faults = FAULTS
    assert list(faults) == sorted(faults)
    assert all(fault.name == name for name, fault in faults.items())
    assert set(faults) == {
        "clock", "connection", "connection-controller", "connection-fetch", "connection-zookeeper",
        "consumer-from-coordinator", "consumer-from-zookeeper", "consumer-zookeeper-resets",
        "controlled-shutdown", "corrupt", "cut-consumer", "disk-error", "disk-full", "freeze",
        "garbage-tail", "hold", "kill", "kill-consumer", "kill-in-fsync", "kill-in-write",
        "membership", "membership-add", "memory", "membership-remove", "membership-replace", "move-replicas",
        "packets", "packets-duplicate", "packets-loss", "packets-rate", "packets-reorder",
        "partition", "partition-bridge",
        "partition-fast-fail", "partition-from-zookeeper", "partition-halves", "partition-isolate-controller",
        "partition-isolate-leader", "partition-majorities-ring", "partition-majority-minority", "partition-one",
        "partition-one-way", "partition-random-halves", "partition-leader-and-follower",
        "partition-follower-from-leader", "partition-links", "power-loss", "power-loss-in-fsync",
        "power-loss-in-write", "restart",
        "restart-rolling", "slow-disk", "slow-fsync", "slow-network", "start-twice", "stop",
        "stop-consumer", "truncate-tail", "upgrade", "zookeeper-expire", "zookeeper-kill", "zookeeper-pause",
        "outage", "outage-power-loss", "rollback", "wipe",
    }  # fmt: skip


class Meteor(Kill):
    name = "meteor"
    description = "a stone from the sky"


def test_a_catalogue_takes_further_faults() -> None:
    more = FaultCatalogue.standard(Meteor())
    assert set(more) - set(FAULTS) == {"meteor"}
    assert list(more) == sorted(more)
    assert "meteor" in more.in_nemesis_all
    assert more.parse("meteor").id == "meteor"
    with pytest.raises(FaultNameError, match="no fault 'meteor'"):
        FAULTS.parse("meteor")


@pytest.mark.parametrize("name", ["kill", "all", "none", "", "two words", "kill+stop", "a,b"])
def test_a_fault_needs_a_name_of_its_own_that_can_be_written(name: str) -> None:
    odd = Meteor()
    odd.name = name
    with pytest.raises(FaultNameError, match=r"called|two faults have the name"):
        FaultCatalogue.standard(odd)


def test_descriptions_fit_one_line_and_begin_with_none() -> None:
    lines = FAULTS.descriptions()
    assert next(iter(lines)) == "none"
    assert all(line and "\n" not in line and len(line) < 100 for line in lines.values())


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("partition,kill", "kill+partition"),
        ("kill+partition", "kill+partition"),
        ("kill, kill", "kill"),
        ("none", "none"),
        ("stop,partition-halves,kill", "kill+partition-halves+stop"),
    ],
)
def test_a_combination_has_one_sorted_id(text: str, identity: str) -> None:
    assert FAULTS.parse(text).id == identity
    assert FAULTS.parse(identity) == FAULTS.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partiton", "did you mean partition"),
        ("kill,none", "none cannot be combined"),
        ("", "no fault ''"),
        ("kill,", "''"),
        ("comet", "no fault 'comet'; known faults: clock, .*, and none$"),
    ],
)
def test_what_is_no_combination_is_refused(text: str, message: str) -> None:
    with pytest.raises(FaultNameError, match=message):
        FAULTS.parse(text)


def test_all_is_one_run_per_fault_and_nothing_twice() -> None:
    runs = [run.id for run in FAULTS.select(["none", "all", "kill", "partition,kill"])]
    assert runs[0] == "none"
    assert runs[-1] == "kill+partition"
    assert runs[1:-1] == sorted(
        {"corrupt", "freeze", "garbage-tail", "hold", "kill", "partition", "partition-fast-fail", "partition-one-way"}
        | {
            "clock",
            "connection",
            "consumer-from-coordinator",
            "consumer-from-zookeeper",
            "consumer-zookeeper-resets",
            "controlled-shutdown",
            "cut-consumer",
            "disk-error",
            "disk-full",
            "kill-consumer",
            "kill-in-fsync",
            "kill-in-write",
            "membership",
            "memory",
            "move-replicas",
            "packets",
            "power-loss",
            "power-loss-in-fsync",
            "power-loss-in-write",
            "restart",
            "restart-rolling",
            "rollback",
            "slow-disk",
            "slow-fsync",
            "slow-network",
            "start-twice",
            "stop",
            "stop-consumer",
            "truncate-tail",
            "upgrade",
            "wipe",
            "zookeeper-expire",
            "zookeeper-kill",
            "zookeeper-pause",
        }
    ), "the shapes of a partition are in its mix"
    assert [run.id for run in FaultCatalogue([Kill(), Meteor()]).select(["all"])] == ["kill", "meteor"]


class Plain:
    """A system with servers alone that says neither where its data are nor stops itself."""

    name = "plain"
    roles = ("server",)


def test_what_a_system_cannot_have_is_reported_with_the_reason() -> None:
    reasons = {name: explain_unsuitable(fault, Plain()) for name, fault in FAULTS.items()}  # type: ignore[arg-type]
    assert reasons["kill"] is None
    assert reasons["zookeeper-kill"] == "needs a node of role zookeeper, which plain lacks"
    assert "SupportsDataFiles" in (reasons["corrupt"] or "")
    assert "SupportsDataFolder" in (reasons["wipe"] or "")
    assert "SupportsHold" in (reasons["hold"] or "")
    assert reasons["stop-consumer"] == "needs a node of role client, which plain lacks"
    broker = {name: explain_unsuitable(fault, Broker()) for name, fault in FAULTS.items()}
    assert {name for name, reason in broker.items() if reason is not None} == {
        name for name in FAULTS if "consumer" in name or name == "upgrade"
    }, "it names no new image, and its clients live in the harness unless an experiment says otherwise"
    assert "SupportsMove" in (reasons["move-replicas"] or "")
    assert explain_unsuitable(FAULTS["move-replicas"], Broker(partitions=0)) is not None


def test_lacking_roles() -> None:
    faults = FAULTS
    assert find_missing_roles(faults["partition-from-zookeeper"], ["broker"]) == ["zookeeper"]
    assert find_missing_roles(faults["partition-from-zookeeper"], ["zookeeper", "broker"]) == []
    assert find_missing_roles(faults["kill"], ["broker"]) == []


def test_a_fault_that_does_not_say_what_it_does_or_what_proves_it_is_rejected() -> None:
    class Silent(ServerFault):
        name = "silent"
        description = "does nothing"
        impact = Impact()

    with pytest.raises(FaultError, match="the fault silent lacks strike, find_missing_proof"):
        FaultCatalogue([Silent()])
