"""Options become settings or an error that names the option."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from assay.harness.plugin.options import add_options
from assay.harness.run.limits import LIMITS
from assay.harness.run.settings import (
    SettingsError,
    derive_seed,
    list_required_faults,
    parse_budget,
    parse_choice,
    parse_concurrency,
    parse_count,
    parse_interval,
    parse_nodes,
    parse_rate,
    parse_seconds,
    parse_seed,
    seed_of_repetition,
)


def test_derived_seeds_are_the_same_in_every_process() -> None:
    code = "from assay.harness.run.settings import derive_seed; print(derive_seed(7, 'network', 3))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt}, capture_output=True, check=True, text=True
        ).stdout
        for salt in ("1", "2")
    }
    assert outputs == {f"{derive_seed(7, 'network', 3)}\n"}


def test_parts_of_a_run_get_different_seeds() -> None:
    assert len({derive_seed(seed, part) for seed in range(50) for part in ("a", "b")}) == 100


def test_the_first_repetition_has_the_seed_itself_so_that_a_repetition_can_be_run_alone() -> None:
    assert seed_of_repetition(42, 1) == 42
    third = seed_of_repetition(42, 3)
    assert third != 42
    assert seed_of_repetition(third, 1) == third


def test_tests_share_the_seed_of_a_session_and_of_no_further_repetition() -> None:
    assert seed_of_repetition(42, 1, "test_log") == seed_of_repetition(42, 1, "test_group")
    assert len({seed_of_repetition(42, number, test) for number in (2, 3) for test in ("test_log", "test_group")}) == 4


def test_concurrency_counts_workers_or_multiplies_nodes() -> None:
    assert parse_concurrency("2n", 3) == 6
    assert parse_concurrency("n", 5) == 5
    assert parse_concurrency("7", 3) == 7


@pytest.mark.parametrize(
    ("text", "nodes", "by_role"),
    [
        ("5", 5, ()),
        ("server=2,sentinel=3", 2, ("server=2", "sentinel=3")),
        ("4, sentinel=3", 4, ("sentinel=3",)),
        ("sentinel=3,4", 4, ("sentinel=3",)),
    ],
)
def test_nodes_are_of_every_role_or_of_one(text: str, nodes: int, by_role: tuple[str, ...]) -> None:
    assert parse_nodes(text) == (nodes, by_role)
    assert parse_nodes(",".join([str(nodes), *by_role])) == (nodes, by_role), "as a run's command says it"


def test_what_all_brings_in_was_not_asked_for_by_name() -> None:
    assert list_required_faults(["all", "kill,partition", "none"]) == {"kill", "partition"}


@pytest.mark.parametrize(
    ("parse", "names"),
    [
        (lambda: parse_seconds("--time-limit", "soon"), "--time-limit='soon'"),
        (lambda: parse_seconds("--time-limit", "0"), "--time-limit=0 must be between 0.001 and 8,640,000 seconds"),
        (lambda: parse_seconds("--time-limit", "nan"), "--time-limit"),
        (lambda: parse_seconds("--time-limit", "inf"), "--time-limit"),
        (lambda: parse_rate("-3"), "--rate=-3"),
        (lambda: parse_rate("fast"), "--rate='fast'"),
        (lambda: parse_count("--nodes", "0"), "--nodes=0 must be between 1 and 200 nodes"),
        (lambda: parse_count("--nodes", "3.5"), "--nodes='3.5'"),
        (lambda: parse_nodes("3,4"), "more than one number"),
        (lambda: parse_nodes("server=0"), "--nodes=server=0 must be between 1 and 200 nodes"),
        (lambda: parse_nodes("server=many"), "'many' is not a whole number"),
        (lambda: parse_nodes("server=1,server=2"), "repeats a role"),
        (lambda: parse_nodes("=2"), "ROLE=NUMBER"),
        (lambda: parse_concurrency("2m", 3), "--concurrency='2m'"),
        (lambda: parse_concurrency("0n", 3), "--concurrency=0n must be between 1 and 10,000 workers"),
        (lambda: parse_count("--nodes", "1000000"), "1 and 200 nodes; one machine holds no more nodes of a role"),
        (lambda: parse_count("--nodes", "9" * 4000), "1 and 200 nodes"),
        (lambda: parse_count("--zookeepers", "1000000"), "1 and 100 nodes"),
        (lambda: parse_count("--workers", "1000000"), "1 and 200 nodes"),
        (lambda: parse_nodes("server=1000000"), "--nodes=server=1000000 must be between 1 and 200 nodes"),
        (lambda: parse_concurrency("1000000", 3), "1 and 10,000 workers"),
        (lambda: parse_concurrency("1000000n", 3), "1 and 10,000 workers"),
        (lambda: parse_rate("1e-300"), "--rate=1e-300 must be between 0.001 and 1,000,000 operations per second"),
        (lambda: parse_rate("1e300"), "0.001 and 1,000,000 operations per second"),
        (lambda: parse_rate("nan"), "--rate=nan is not a number"),
        (lambda: parse_seconds("--time-limit", "1e300"), "0.001 and 8,640,000 seconds"),
        (lambda: parse_seconds("--operation-timeout", "1e-9"), "0.001 and 86,400 seconds"),
        (lambda: parse_seconds("--operation-timeout", "1e9"), "0.001 and 86,400 seconds"),
        (lambda: parse_interval("--nemesis-interval", "1e-9", 30, faults=True), "0.01 and 8,640,000 seconds"),
        (lambda: parse_interval("--nemesis-interval", "0.01", 86400, faults=True), "makes 8,640,000 faults"),
        (lambda: parse_budget("--repeat", "1e300h"), "--repeat=1e300 must be between"),
        (lambda: parse_budget("--repeat", "1e9s"), "0.001 and 8,640,000 repetitions, or seconds"),
        (lambda: parse_budget("--repeat", "1000000000"), "0.001 and 8,640,000 repetitions, or seconds"),
        (lambda: parse_budget("--explore", "1e300s"), "examples, or seconds"),
        (lambda: parse_seed("-1"), "--seed=-1"),
        (lambda: parse_seed("x"), "--seed='x'"),
        (lambda: parse_choice("--cluster", "cloud", ("docker", "sim")), "docker, sim"),
    ],
)
def test_a_bad_value_is_named_with_its_option(parse: Callable[[], object], names: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse()
    assert names in str(caught.value)


def test_values_that_are_merely_large_are_taken() -> None:
    assert parse_count("--nodes", "200") == 200
    assert parse_concurrency("50n", 200) == 10_000
    assert parse_seconds("--time-limit", "172800") == 172_800
    assert parse_interval("--nemesis-interval", "10", 172_800, faults=True) == 10
    assert parse_interval("--nemesis-interval", "0.01", 86_400, faults=False) == 0.01
    assert parse_budget("--repeat", "48h").seconds == 172_800


def test_each_number_that_pytest_takes_has_a_row_of_limits() -> None:
    numbers = set(re.findall(r'add\("(--[\w-]+)"[^)]*?metavar="(?:N|S|OPS|N\|S)"', inspect.getsource(add_options)))
    assert {"--nodes", "--rate", "--drain-limit", "--repeat"} < numbers
    assert numbers - {"--seed"} <= LIMITS.keys()
