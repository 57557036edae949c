"""Values that would fill the memory, or hang, are usage errors before anything starts; no session waits in silence."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

SIM = ("--cluster=sim", "--seed=7", "--time-limit=1", "--rate=100", "--nodes=1", "--reports=never")


def said(project: pytest.Pytester, *options: str) -> str:
    """Returns the text of a usage error."""
    result = project.runpytest_inprocess(*SIM, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not (project.path / "store").exists(), "nothing has begun"
    text = "\n".join([*result.outlines, *result.errlines])
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    return text


@pytest.mark.parametrize(
    ("option", "recorded"),
    [
        ("--nodes=1000000", "--nodes=1000000 must be between 1 and 200 nodes"),
        ("--nodes=broker=1000000", "--nodes=broker=1000000 must be between 1 and 200 nodes"),
        ("--concurrency=1000000", "--concurrency=1000000 must be between 1 and 10,000 workers"),
        ("--time-limit=1e300", "--time-limit=1e300 must be between 0.001 and 8,640,000 seconds"),
        ("--rate=1e-300", "--rate=1e-300 must be between 0.001 and 1,000,000 operations per second"),
        ("--operation-timeout=1e300", "--operation-timeout=1e300 must be between 0.001 and 86,400 seconds"),
        ("--drain-limit=0", "--drain-limit=0 must be between 0.001 and 8,640,000 seconds"),
        ("--repeat=1000000000", "--repeat=1000000000 must be between"),
        ("--repeat=1000000", "--repeat=1000000 makes more than 50,000 tests"),
        ("--replay=/dev/zero", "--replay=/dev/zero: this is a device, and reading it may never end"),
    ],
)
def test_an_absurd_value_names_its_limits(toy_project: pytest.Pytester, option: str, recorded: str) -> None:
    assert recorded in said(toy_project, option)


@pytest.mark.parametrize("cluster", ["ssh", "attach"])
def test_a_file_of_hosts_whose_name_is_too_long(toy_project: pytest.Pytester, cluster: str) -> None:
    name = "x" * 300
    assert f"{name} cannot be read (File name too long)" in said(toy_project, f"--cluster={cluster}", f"--hosts={name}")


def test_a_fault_each_nanosecond(toy_project: pytest.Pytester) -> None:
    assert "must be between 0.01 and" in said(toy_project, "--nemesis=kill", "--nemesis-interval=1e-9")
    text = said(toy_project, "--nemesis=kill", "--nemesis-interval=0.01", "--time-limit=86400")
    assert "makes 8,640,000 faults; a run has at most 50,000" in text


def test_hours_over_many_tests_are_too_many_to_collect(toy_project: pytest.Pytester) -> None:
    file = toy_project.path / "test_file.py"
    text = file.read_text()
    body = text[text.index("@experiment") :]
    file.write_text(text + "\n".join(body.replace("test_toy", f"test_{number}") for number in range(20)))
    recorded = said(toy_project, "--repeat=8h")
    assert "--repeat=8h makes more than 50,000 tests" in recorded
    assert "assay nightly --budget" in recorded


def test_a_fifo_in_place_of_a_schedule(toy_project: pytest.Pytester) -> None:
    os.mkfifo(toy_project.path / "schedule.json")
    assert "schedule.json: this is a FIFO" in said(toy_project, "--replay=schedule.json")


@pytest.fixture
def dead() -> Iterator[int]:
    """A port that takes no connection: it is bound, and no one listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_spark_master_that_is_dead_is_named_before_a_cluster_starts(
    toy_project: pytest.Pytester, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.checkers.engine.engine_selection._require_spark", lambda: None)  # Java may be missing
    recorded = said(toy_project, f"--spark-master=spark://127.0.0.1:{dead}")
    assert f"no Spark master answers at spark://127.0.0.1:{dead}" in recorded
    assert "leave out --spark-master" in recorded
