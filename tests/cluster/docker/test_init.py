"""The test that ``assay init`` writes starts the services of the Compose file, and reaches a verdict under a kill."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.cluster.compose import project
from assay.cluster.compose.project import ComposeError
from assay.harness.cli import known_images
from assay.harness.cli.known_images import KnownImage, Workload
from assay.harness.cli.main import main
from assay.harness.run.settings import DOCKER, Settings

from helpers.attempts import played
from helpers.bare_registers import FILE, KEYS, PORT, PROGRAM, built_image

pytestmark = pytest.mark.docker

REGISTERS = KnownImage(
    name=PROGRAM,
    pattern="bare-registers",
    port=PORT,
    workload=Workload(
        imports={"assay": ["REGISTER_ANOMALIES", "forbid"], "assay.workloads.generic.registers": ["unique_values"]},
        contract="forbid(*REGISTER_ANOMALIES, {terms})",
        traffic=f"unique_values({KEYS})",
        promise="A read returns the latest write.",
        operations="Clients read and write registers.",
    ),
    client="helpers.bare_registers.RegisterClient",
    patience=1.0,
    folder="/run/registers",
    files=["log"],
)
TEXT = f"""\
version: "3.8"
x-server: &server {{image: "@image@", user: "0"}}
services:
  server1: {{<<: *server, command: "{PROGRAM} {PORT} {FILE} server2 server3"}}
  server2: {{<<: *server, command: "{PROGRAM} {PORT} {FILE} server1 server3"}}
  server3: {{<<: *server, command: "{PROGRAM} {PORT} {FILE} server1 server2"}}
"""


def test_the_written_test_reaches_a_verdict(
    engine_needed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        project.find_command()
    except ComposeError:
        pytest.skip("no command of Compose is installed")
    monkeypatch.setattr(known_images, "KNOWN", [REGISTERS])
    with built_image(tmp_path / "bare", f"bare-registers:init{os.getpid()}") as image:
        (tmp_path / "docker-compose.yml").write_text(TEXT.replace("@image@", image))
        assert main(["init", str(tmp_path / "docker-compose.yml")]) == 0
        spec = importlib.util.spec_from_file_location("test_server", tmp_path / "test_server.py")
        assert spec is not None
        assert spec.loader is not None
        written = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(written)
        given = Settings(
            seed=3, cluster=DOCKER, time_limit=4.0, rate=100.0, store=tmp_path, nemesis=("kill",), nemesis_interval=2.0
        )
        judgement = played(written.test_server, given).judgement
    assert judgement is not None
    assert judgement.verdict is Verdict.PASS, (judgement.unknown, judgement.findings)
