"""How a node's main process is launched, as the cluster says it; no engine is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from assay.cluster.docker import DockerCluster
from assay.cluster.docker.software import NodeImage
from assay.cluster.hosts.attached import AttachedNode
from assay.cluster.ssh import preloaded
from assay.cluster.system import Software

from helpers.echo_system import StoringEcho

OURS = f"{preloaded.CLOCK_LIBRARY}:{preloaded.DISK_LIBRARY}"


class Given(StoringEcho):
    """A system with variables of its own."""

    given: Mapping[str, str] = {}

    def software(self, role: str) -> Software:
        return Software(environment=self.given)


@pytest.mark.parametrize(
    ("image", "system", "libraries"),
    [
        ({}, {}, OURS),
        ({"LD_PRELOAD": "/lib/image.so"}, {}, f"{OURS}:/lib/image.so"),
        ({"LD_PRELOAD": "/lib/image.so"}, {"LD_PRELOAD": "/lib/system.so"}, f"{OURS}:/lib/system.so"),
    ],
)
def test_what_an_image_or_a_system_preloads_stands_beside_what_the_faults_need(
    tmp_path: Path, image: Mapping[str, str], system: Mapping[str, str], libraries: str
) -> None:
    echo = Given(tmp_path / "echo")
    echo.given = system
    cluster = DockerCluster(
        echo, {"broker": 1}, run_id="run", seed=1, state_dir=tmp_path / "state", own_clocks=True, slow_disks=True
    )
    cluster._images, cluster._files = {"n1": NodeImage("id", image)}, {"n1": ()}
    node = AttachedNode("n1", "broker", 1, "10.0.0.1")
    environment = cluster._make_program(node).environment  # type: ignore[arg-type]
    assert environment["LD_PRELOAD"] == libraries
    assert environment[preloaded.DISK_VARIABLE] == echo.data_folder(AttachedNode("n1", "broker", 1, ""))  # type: ignore[arg-type]
