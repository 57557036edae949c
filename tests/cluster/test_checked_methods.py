"""A nonsensical answer of a system's hook is reported with method and node, before anything depends on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.cluster.checked_methods import list_written_paths
from assay.cluster.hosts.attached import AttachedNode
from assay.cluster.system import DeploymentError

from helpers.echo_system import EVENTS, StoringEcho


class Elsewhere(StoringEcho):
    folder_of_data = "/data"

    def data_folder(self, node: Any) -> str:
        return self.folder_of_data


@pytest.mark.parametrize("folder", ["/data/", "data", "/srv/../data", "//data", "", "/"])
def test_a_folder_of_data_that_a_node_would_know_by_another_name_is_named(tmp_path: Path, folder: str) -> None:
    system, node = Elsewhere(tmp_path), AttachedNode("n1", "broker", 1, "10.0.0.1")
    assert list_written_paths(system, node) == ["/data/", EVENTS, "/etc/echo/peers"]  # type: ignore[arg-type]
    system.folder_of_data = folder
    with pytest.raises(DeploymentError, match=r"^data_folder\(\) of n1 returned .* normalized absolute path"):
        list_written_paths(system, node)  # type: ignore[arg-type]
