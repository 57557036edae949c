"""On an engine whose network this machine cannot reach, clients and network calls run in a container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cluster.docker import image
from assay.harness.core.history import HistoryReader
from assay.harness.core.timestamps import NANOSECONDS

from helpers.second_engine import run_docker, second_engine

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[3]
SUCCEEDED = "1 passed"
AHEAD = 5000
"""Seconds by which the monotonic clock of the engine is ahead, as on another machine."""
CLOCKS = r"engine [+-]0\.\d{3} s \(within \d\.\d{3} s\)"


@pytest.mark.usefixtures("engine_needed")
def test_a_workload_under_a_partition_passes_on_an_engine_that_cannot_be_reached(tmp_path: Path) -> None:
    reference = image.ensure_node_image(lambda line: None)
    with second_engine(tmp_path / "e", ahead=AHEAD) as engine:
        saved = subprocess.run(["docker", "save", image.image_reference()], capture_output=True, check=True).stdout
        engine.docker("load", stdin=saved)
        assert engine.docker("image", "inspect", "--format={{.Id}}", image.image_reference()).strip() == reference
        command = [
            sys.executable, "-m", "pytest", str(ROOT / "workloads/test_log.py"), "--cluster=docker", "--time-limit=6",
            "--nemesis=partition", "--nemesis-interval=4", "--seed=3", "--reports=never",
            f"--store={tmp_path}/store", "-q", "-p", "no:cacheprovider",
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "DOCKER_HOST": engine.host}, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert SUCCEEDED in done.stdout, done.stdout + done.stderr
        assert engine.docker("ps", "--all", "--quiet") == "", "the clients' container is removed, too"
        assert "assay-" not in engine.docker("network", "ls", "--format={{.Name}}")
    (run,) = (tmp_path / "store").glob("*/2*")
    verdict = json.JSONDecoder().raw_decode((run / "verdict.json").read_text())[0]
    assert verdict["effects"] > 0
    assert json.loads((run / "run.json").read_text())["verdict"] == "pass"
    cluster = json.loads((run / "settings.json").read_text())["cluster"]
    assert "in a container, assay-" in cluster["clients"]
    assert all(re.fullmatch(CLOCKS, cluster[key]) for key in ("clocks", "clocks at the end")), cluster
    times = [row["time"] for row in HistoryReader(run / "history").table("events").to_pylist()]
    assert min(times) / NANOSECONDS > -200
    assert 0 < max(times) / NANOSECONDS < 200, "the events have the times of the clock here"
    assert "clients" not in run_docker({}, "ps", "--all", "--format={{.Names}}")
