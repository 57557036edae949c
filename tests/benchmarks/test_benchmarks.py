"""Every benchmark starts, measures something in a small form, and prints its figures as JSON."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
BENCHMARKS = TESTS.parent / "benchmarks"
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
"""Some measure what is made by what tests make, too."""
SMALL = {
    "interpreter": "--operations=2000",
    "worker_process": "--operations=60 --rounds=1",
    "simulation_loop": "--pairs=1000",
    "search": "--workloads=test_log --examples=2",
    "finding": "--defects=test_log/divergent-tail --limit=3",
    "simulation": "--seconds=2 --rates=50 --faults=none",
    "groups": "--groups=2",
    "herd": "--consumers=2,3",
    "rolling_restart": "--seeds=1 --partitions=1 --producers=1",
    "sendfile": "--megabytes=2 --rounds=1 --sizes=64",
    "morning": "--runs=50",
    "trends": "--nights=5 --cells=3 --engines=duckdb",
    "many_runs": "--runs=4 --different=2 --operations=500 --sample=1 --engines=auto",
    "checks": "--models=log --effects=2000 --keys=2 --clients=5 --engines=duckdb",
    "price": "--effects=2000 --keys=2 --clients=5 --engines=duckdb --rounds=1",
    "doubling": "--seconds=20 --doublings=1 --rate=50 --rounds=1",
    "hour": "--rates=1 --models=log,counter --clients=3 --keys=3",
    "isolation": "--transactions=100,200 --sessions=3 --levels=all",
    "exposure": "--models=log --effects=2000 --keys=2 --clients=5 --runs=1",
}
LARGER = {
    "simulation": "--seconds=8 --rates=50",
    "groups": "--groups=2,3",
    "rolling_restart": "--seeds=1 --partitions=1",
    "checks": "--models=log --effects=20000 --keys=2 --clients=5 --engines=duckdb --plant",
}
"""With what a measurement has in addition: faults, several sizes, planted anomalies. The nightly run's."""
ELSEWHERE = {
    "explorers", "figures", "broker", "linearizability", "published_histories", "sets_and_queues", "store_on_spark",
    "control", "clients",
}  # fmt: skip
"""Modules that the other benchmarks share, and benchmarks that have tests of their own below."""


def figures(name: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def numbers(found: Any) -> list[float]:
    """All numbers in there."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        return [number for each in found for number in numbers(each)]
    return [found] if isinstance(found, int | float) else []


BY_DAY = ("interpreter",)
"""The others are tried with the long tests."""


def test_every_benchmark_is_run_here() -> None:
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == SMALL.keys() | ELSEWHERE


def test_exponents_are_slopes_of_logarithms() -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        doubling = importlib.import_module("doubling")
    finally:
        sys.path.remove(str(BENCHMARKS))
    lengths = [60, 120, 240, 480]
    times = [{"linear": 0.001 * n, "square": n * n / 1e4, "fixed": 0.01} for n in lengths]
    assert doubling.compute_exponents(lengths, times) == pytest.approx({"linear": 1, "square": 2})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.long) for name in sorted(SMALL)]
)
def test_a_small_form_prints_its_figures_as_json(name: str) -> None:
    found = numbers(figures(name, *SMALL[name].split()))
    assert found
    assert all(number >= 0 for number in found)


@pytest.mark.long
@pytest.mark.parametrize("name", LARGER)
def test_a_larger_form_does_so(name: str) -> None:
    assert numbers(figures(name, *LARGER[name].split()))


@pytest.mark.spark
@pytest.mark.long
def test_the_benchmark_of_trends_runs_spark_and_compares_it_with_duckdb() -> None:
    found = figures("trends", "--nights=20", "--cells=5")
    assert found["medians"] > 0
    assert found["duckdb_rows"] == found["spark_rows"]
    assert found["duckdb_asked"] == found["spark_asked"] >= found["spark_worse"]


@pytest.mark.long
@pytest.mark.slow
def test_the_linearizability_benchmark_decides_what_it_plants() -> None:
    found = figures("linearizability", "--operations=200", "--clients=5", "--kinds=legal,illegal")
    assert [case["verdict"] for case in found["cases"]] == ["pass", "fail"]


def test_the_benchmark_of_sets_and_queues_decides_what_it_plants() -> None:
    found = figures("sets_and_queues", "--operations=200")
    verdicts = {case["kind"]: case["verdict"] for case in found["cases"]}
    assert verdicts == {kind: "fail" if kind.endswith("illegal") else "pass" for kind in verdicts}
    assert {case["note"] for case in found["cases"]} == {
        "layers of elements on 1 key",
        "elements on 1 key",
        "pairs of values on 1 key",
    }


def test_text_goes_to_stdout_without_json() -> None:
    command = [sys.executable, str(BENCHMARKS / "simulation_loop.py"), "--pairs=400"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pairs/s" in done.stdout
    assert "{" not in done.stdout


@pytest.mark.docker
@pytest.mark.long
def test_the_benchmark_of_control_compares_both_ways() -> None:
    found = figures("control", "--commands=3", "--megabytes=1", "--rounds=1")
    assert found.keys() == {"connect", "commands", "megabytes"}
    assert min(found.values()) > 0


@pytest.mark.docker
@pytest.mark.long
def test_the_benchmark_of_clients_compares_both_places() -> None:
    found = figures("clients", "--seconds=3", "--rounds=1")
    assert found.keys() == {"here", "container", "ratios"}
    assert all(one.keys() == {"rate", "median_ms", "p99_ms"} for one in found.values())
    assert min(numbers(found)) > 0


@pytest.mark.spark
@pytest.mark.long
def test_the_benchmark_of_checks_runs_spark_and_compares_the_engines() -> None:
    found = figures("checks", "--models=register", "--effects=20000", "--keys=2", "--clients=5", "--plant")
    assert [row["engine"] for row in found["rows"]] == ["duckdb", "spark"]


@pytest.mark.spark
@pytest.mark.long
def test_the_benchmark_of_a_store_judges_its_runs_and_a_large_one_on_workers() -> None:
    small = ("--effects=1330000", "--run-effects=20000", "--different=2", "--large=1120000", "--keys=20")
    found = figures("store_on_spark", *small)
    assert found["failed"] == found["runs"] - found["runs"] // 2 > 1
    assert found["shuffled"] > 0
    assert found["peak"] > 0


@pytest.mark.docker
@pytest.mark.long
def test_the_benchmark_of_the_broker_runs_in_containers() -> None:
    pytest.importorskip("confluent_kafka")
    found = figures("broker", "--messages=2000", "--rounds=1")
    assert all(number > 0 for number in numbers(found))
