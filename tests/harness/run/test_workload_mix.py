"""A mix and an experiment make an experiment: with more operations, other settings, options and promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.harness.core.generator import Generator, limit, phases, repeat, simulate, split_phases
from assay.harness.core.operation import Operation, Phase
from assay.harness.run.experiment import Experiment, apply_mixes, resolve_random_mix
from assay.harness.run.settings import Settings, SettingsError
from assay.harness.run.workload_mix import RANDOM, WorkloadMix, check_mixes, format_mix_list, list_mix_combinations
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.log_client import LogClient


def body(settings: Settings) -> Generator:
    return repeat(Operation("own")) | Operation("last", phase=Phase.DRAIN)


SIZES = WorkloadMix(
    "sizes", "of a shelf", settings={"segment.bytes": ("1024", "2048", "4096")}, client={"pages": (4, 5)}
)
SCANS = WorkloadMix(
    "scans",
    "more operations",
    adds=lambda system, settings: [(50, repeat(Operation("scan")))],
    closes=lambda system, settings: Operation("look", phase=Phase.DRAIN),
    contract=lambda contract, system: contract.tolerate("duplicate"),
)
HUGE = WorkloadMix("huge", "shelves", settings={"segment.bytes": ("65536",)})
MIXES = (SIZES, SCANS, HUGE)


def shelf(*mixes: WorkloadMix) -> Experiment:
    return Experiment("test_shelf", Broker(), LogClient, Contract(forbidden=("duplicate",)), body, mixes=mixes)


def asked(*names: str, seed: int = 1) -> Settings:
    return Settings(seed, workload_mix=names)


def operations(generator: Generator) -> list[str]:
    return [event.operation.f for event in simulate(generator) if event.completed is None]


def segment_bytes(made: Experiment) -> int:
    assert isinstance(made.system, Broker)
    return made.system.topic_config.segment_bytes


def test_without_mixes_an_experiment_is_what_it_was() -> None:
    made = shelf(*MIXES)
    assert apply_mixes(made, asked()) is made


def test_operations_are_added_by_weight_and_closing_comes_before_the_workloads_own_end() -> None:
    made = apply_mixes(shelf(*MIXES), asked("scans"))
    main, *later = split_phases(made.generator(asked("scans")))
    counts = Counter(operations(limit(900, main)))
    assert set(counts) == {"own", "scan"}
    assert 200 < counts["scan"] < 400, "50 to the workload's own 100"
    assert operations(phases(*later)) == ["look", "last"]
    assert made.contract.tolerates("duplicate")


def test_settings_and_options_are_drawn_from_the_seed_and_no_other_mix_changes_what_is_drawn() -> None:
    drawn = {seed: apply_mixes(shelf(*MIXES), asked("sizes", seed=seed)) for seed in range(40)}
    assert {segment_bytes(one) for one in drawn.values()} == {1024, 2048, 4096}
    assert {one.client_options["pages"] for one in drawn.values()} == {4, 5}
    for seed, one in drawn.items():
        both = apply_mixes(shelf(*MIXES), asked("scans", "sizes", seed=seed))
        assert (both.system, both.client_options) == (one.system, one.client_options)


def test_random_is_one_mix_or_several_that_go_together() -> None:
    found = {resolve_random_mix(shelf(*MIXES), asked(RANDOM, seed=seed)).workload_mix for seed in range(200)}
    assert found == {("huge",), ("scans",), ("sizes",), ("huge", "scans"), ("scans", "sizes")}
    again = {resolve_random_mix(shelf(*MIXES), asked(RANDOM, seed=7)).workload_mix for _ in range(3)}
    assert len(again) == 1


def test_what_is_not_promised_is_taken_by_its_name_alone() -> None:
    scans, *others = (replace(one, promised=one.name != "scans") for one in MIXES if one.name in ("scans", "huge"))
    taken = [scans, *others]
    assert {resolve_random_mix(shelf(*taken), asked(RANDOM, seed=seed)).workload_mix for seed in range(20)} == {
        ("huge",)
    }
    assert list_mix_combinations(("all",), taken) == (("huge",),)
    assert check_mixes("test_shelf", ("scans",), taken) is None
    assert apply_mixes(shelf(*taken), asked("scans")).contract.tolerates("duplicate")
    assert check_mixes("test_shelf", (RANDOM,), [scans]) == (
        "--workload-mix=random: test_shelf takes no mixes; choose by name what the system does not promise: scans"
    )
    assert check_mixes("test_shelf", ("all",), [scans]) == (
        "--workload-mix=all: test_shelf does not take the mix 'all'; it takes: scans"
    )
    remark = "(provokes anomalies that the system allows; only used if it is named)"
    assert any(line.endswith(remark) for line in format_mix_list({"test_shelf": taken}))


@pytest.mark.parametrize(
    ("names", "mixes", "reason"),
    [
        (
            ("scan",),
            MIXES,
            "--workload-mix=scan: test_shelf does not take the mix 'scan'; it takes: sizes, scans, huge",
        ),
        (
            ("huge", "sizes"),
            MIXES,
            "--workload-mix=huge,sizes: the mixes huge and sizes both choose segment.bytes: name only one of them",
        ),
        ((RANDOM,), (), "--workload-mix=random: test_shelf takes no mixes; leave out this option"),
        (("all",), (), "--workload-mix=all: test_shelf does not take the mix 'all'; it takes: none"),
        (("huge", "scans"), MIXES, None),
        ((RANDOM,), MIXES, None),
        ((), (), None),
    ],
)
def test_what_does_not_fit_is_said(names: tuple[str, ...], mixes: tuple[WorkloadMix, ...], reason: str | None) -> None:
    assert check_mixes("test_shelf", names, mixes) == reason
    if reason is not None and names != (RANDOM,):
        with pytest.raises(SettingsError):
            apply_mixes(shelf(*mixes), asked(*names))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [()]),
        (("none",), [()]),
        (("all",), [("huge",), ("scans",), ("sizes",)]),
        (("scans,huge", "random"), [("huge", "scans"), ("random",)]),
        (("huge+scans", "scans,huge"), [("huge", "scans")]),
        (("none", "all", "huge"), [(), ("huge",), ("scans",), ("sizes",)]),
    ],
)
def test_a_comma_combines_and_repeating_makes_separate_tests(options: Sequence[str], expected: list[Any]) -> None:
    assert list(list_mix_combinations(options, MIXES)) == expected


def test_a_setting_that_the_system_has_not_is_said_with_the_mix() -> None:
    odd = WorkloadMix("odd", "", settings={"flavour": ("sour",)})
    with pytest.raises(SettingsError, match="the mix odd: unknown topic setting 'flavour'"):
        apply_mixes(shelf(odd), asked("odd"))
