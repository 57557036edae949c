"""Tests where a node's disk is mounted, whatever its folder is called; data lost with its power is tried in Docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.cluster.ssh import power

from helpers.small_disk import small_disk


@pytest.mark.parametrize("name", ["data", "my data", "back\\slash", "dätä", "a\ttab"])
def test_a_disk_is_found_where_it_is_mounted(tmp_path: Path, name: str) -> None:
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / name)
    with small_disk(tmp_path / name, "32k") as disk:
        assert power._is_mounted(str(disk))
        assert power._is_mounted(str(linked)), "by its other name, too"
        assert not power._is_mounted(str(tmp_path))
    assert not power._is_mounted(str(disk))
