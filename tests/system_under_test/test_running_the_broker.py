"""docs/broker/running_the_broker.md describes every znode, its example works, and each setting has a docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from assay.system_under_test.config import parse_config
from assay.system_under_test.zookeeper import paths

CONFIG = Path(__file__).parents[2] / "system_under_test" / "config.py"
PAGE = (Path(__file__).parent.parent.parent / "docs" / "broker" / "running_the_broker.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", ["BrokerConfig", "TopicConfig"])
def test_every_setting_has_a_docstring(name: str) -> None:
    tree = ast.parse(CONFIG.read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    for node, after in zip(found.body, found.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(after, ast.Expr), f"{ast.unparse(node.target)} has no docstring"
            assert isinstance(after.value, ast.Constant), f"{ast.unparse(node.target)} has no docstring"


def test_every_znode_is_described() -> None:
    known = [
        *paths.CREATED_AT_START,
        paths.CONTROLLER,
        paths.CONTROLLER_EPOCH,
        paths.REASSIGNMENTS,
        paths.PREFERRED_ELECTION,
        paths.CLUSTER_ID,
        paths.partition_state("T", "P"),  # type: ignore[arg-type]
        paths.consumer("G", "C"),
        paths.consumer_owner("G", "T", "P"),  # type: ignore[arg-type]
        paths.consumer_offset("G", "T", "P"),  # type: ignore[arg-type]
    ]
    found = re.findall(r"^\| `(/\S+)`", section("What is in ZooKeeper"), re.MULTILINE)
    assert [path for path in known if not any(one == path or one.startswith(f"{path}/") for one in found)] == []


def test_the_example_is_a_configuration() -> None:
    example = section("An example").partition("broker.json <<END\n")[2].partition("END\n")[0]
    assert parse_config(example.encode(), "the example").broker_id == 1
