"""Whatever is drawn can be played: in time, on nodes that exist, and within what a contract can promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.harness.run.client_nodes import SystemWithClientNodes
from assay.harness.run.faults import explain_inapplicable
from assay.harness.run.settings import Settings
from assay.harness.search.example import Example
from assay.harness.search.exploration import make_search_space
from assay.harness.search.shrink import iterate_simplifications
from assay.harness.search.strategies import MOST_STEPS, SearchSpace, draw_example, make_playable
from assay.nemesis.faults.file_damage import FileDamage
from assay.nemesis.faults.kill import PowerLoss
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import FaultSchedule, decode_schedule, encode_schedule
from assay.nemesis.schedule.target import CLIENT_KINDS, TargetKind, named_target
from assay.nemesis.schedule.trigger import OnEvent
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.offsets_client import OffsetsClient

from helpers.examples import some_of

BASE = Settings(seed=1, time_limit=10.0, rate=50.0)
EVENTS = ("became-leader", "isr-change", "truncated")
FAULTS = FaultCatalogue.standard()
TERRAIN = replace(make_search_space(Broker(), BASE, FAULTS), events=EVENTS)
LOSSY = {name for name, fault in FAULTS.items() if isinstance(fault, PowerLoss | FileDamage)}

fresh = draw_example(TERRAIN, ())
corpora = st.lists(fresh, max_size=3).flatmap(lambda corpus: draw_example(TERRAIN, tuple(corpus)))


@settings(max_examples=some_of(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(fresh, corpora))
def test_what_is_drawn_can_be_played(tmp_path_factory: pytest.TempPathFactory, example: Example) -> None:
    steps = example.schedule.steps
    assert len(steps) <= MOST_STEPS
    assert example.time_limit <= 10.0
    assert decode_schedule(encode_schedule(example.schedule)) == example.schedule
    for step in steps:
        assert step.until < example.time_limit
        assert step.duration > 0
        assert all(int(name.strip("nzk")) <= example.nodes for name in step.target.names)
    file = tmp_path_factory.getbasetemp() / "drawn.json"
    assert explain_inapplicable(Broker(), example.settings(BASE, file), FAULTS) is None


STAFFED = SystemWithClientNodes(Broker(groups=("members",)), OffsetsClient)
CONSUMERS = replace(make_search_space(STAFFED, BASE, FAULTS), events=EVENTS)
consumed = st.lists(draw_example(CONSUMERS, ()), max_size=2).flatmap(
    lambda corpus: draw_example(CONSUMERS, tuple(corpus))
)


@settings(max_examples=some_of(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(consumed)
def test_faults_of_consumers_are_drawn_for_consumers_alone(
    tmp_path_factory: pytest.TempPathFactory, example: Example
) -> None:
    for step in example.schedule.steps:
        assert ("-consumer" in step.fault or "consumer-" in step.fault) == (step.target.kind in CLIENT_KINDS)
    file = tmp_path_factory.getbasetemp() / "drawn.json"
    assert explain_inapplicable(STAFFED, example.settings(BASE, file), FAULTS) is None
    by_name = [msgspec.structs.replace(step, target=named_target("client1")) for step in example.schedule.steps]
    of_clients = msgspec.structs.replace(example, schedule=FaultSchedule(0, tuple(by_name)))
    assert make_playable(of_clients, CONSUMERS).schedule.steps
    assert list(iterate_simplifications(of_clients))


def test_consumers_are_among_the_choices_where_clients_live_on_nodes() -> None:
    suited = {name for name in FAULTS if "consumer" in name} - {"consumer-from-zookeeper", "consumer-zookeeper-resets"}
    assert set(CONSUMERS.faults) - set(TERRAIN.faults) == suited
    assert (CONSUMERS.census(5, 1).clients, CONSUMERS.census(5, 1).groups) == (3, ("members",))
    assert TERRAIN.census(5, 1).clients == 0


@settings(max_examples=some_of(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(fresh)
def test_something_happens_before_anything_is_waited_for(example: Example) -> None:
    assert any(step.trigger is None for step in example.schedule.steps)


@settings(max_examples=some_of(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(fresh, corpora))
def test_what_waits_in_vain_is_left_out_of_an_example_and_not_of_what_is_handed_on(example: Example) -> None:
    for drawn, optional in ((example, True), (example.require_triggers(), False)):
        triggers = [step.trigger for step in drawn.schedule.steps if isinstance(step.trigger, OnEvent)]
        assert all(trigger.optional is optional for trigger in triggers)


@settings(max_examples=some_of(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(fresh, corpora))
def test_what_waits_has_time_to_see_a_session_expire(example: Example) -> None:
    for step in example.schedule.steps:
        if isinstance(step.trigger, OnEvent):
            assert step.trigger.within >= min(1.5, (example.time_limit - step.at) / 2)


@settings(max_examples=some_of(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(fresh, corpora))
def test_what_loses_data_hits_one_server_all_through_a_run(example: Example) -> None:
    hit = {step.target for step in example.schedule.steps if step.fault in LOSSY}
    assert len(hit) <= 1
    assert all(target.kind is TargetKind.NAMED and len(target.names) == 1 for target in hit)


def test_every_fault_that_the_system_can_bear_is_among_the_choices() -> None:
    assert set(TERRAIN.faults) >= {"kill", "partition", "power-loss", "clock", "hold", "zookeeper-kill", *LOSSY}


def test_faults_asked_for_are_the_only_ones(tmp_path: Path) -> None:
    asked = make_search_space(Broker(), replace(BASE, nemesis=("kill", "stop")), FAULTS)
    assert asked.faults == ("kill", "stop")
    assert isinstance(asked, SearchSpace)
