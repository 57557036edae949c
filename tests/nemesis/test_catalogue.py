from __future__ import annotations

import pytest

from nemesis.catalogue import FaultNameError, catalogue, descriptions, lacking, parse, select


def test_every_fault_goes_by_its_own_name() -> None:
    faults = catalogue()
    assert list(faults) == sorted(faults)
    assert all(fault.name == name for name, fault in faults.items())
    assert set(faults) == {
        "kill", "stop", "partition", "partition-one", "partition-halves", "partition-isolate-leader",
        "partition-from-zookeeper",
    }  # fmt: skip


def test_catalogues_are_not_shared() -> None:
    catalogue().clear()
    assert catalogue()


def test_descriptions_fit_one_line_and_begin_with_none() -> None:
    lines = descriptions(catalogue())
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
    assert parse(text).id == identity
    assert parse(identity) == parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("partiton", "did you mean partition"), ("kill,none", "none stands alone"), ("", "no fault ''"), ("kill,", "''")],
)
def test_what_is_no_combination_is_refused(text: str, message: str) -> None:
    with pytest.raises(FaultNameError, match=message):
        parse(text)


def test_all_is_one_run_per_family_and_nothing_twice() -> None:
    runs = select(["none", "all", "kill", "partition,kill"])
    assert [run.id for run in runs] == ["none", "kill", "partition", "stop", "kill+partition"]


def test_lacking_roles() -> None:
    faults = catalogue()
    assert lacking(faults["partition-from-zookeeper"], ["broker"]) == ["zookeeper"]
    assert lacking(faults["partition-from-zookeeper"], ["zookeeper", "broker"]) == []
    assert lacking(faults["kill"], ["broker"]) == []
