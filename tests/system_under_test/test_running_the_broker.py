"""docs/broker/running_the_broker.md describes every setting and every znode; its example's settings are accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.system_under_test.config import BrokerConfig, TimestampType, TopicConfig, parse
from assay.system_under_test.zookeeper import paths

PAGE = (Path(__file__).parent.parent.parent / "docs" / "broker" / "running_the_broker.md").read_text()
TYPES = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    TimestampType: "string",
    str | None: "string or null",
    list[str]: "list of string",
    TopicConfig: "object",
}
UNITS = {"_ms": "ms", "_bytes": "bytes", "_seconds": "s", "_percentage": "%"}

Row = tuple[str, str, str, str]
"""Setting, type, unit, default."""


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def described(title: str) -> list[Row]:
    cells = [line.strip("|").split(" | ") for line in section(title).splitlines() if line.startswith("| `")]
    assert all(len(row) == 5 and row[4].strip() for row in cells), "a setting has no description"
    return [(row[0].strip().strip("`"), row[1].strip(), row[2].strip(), row[3].strip().strip("`")) for row in cells]


def rows(config: type[msgspec.Struct], separator: str) -> list[Row]:
    return [
        (
            field.name.replace("_", separator),
            TYPES[field.type],
            next((unit for end, unit in UNITS.items() if field.name.endswith(end)), ""),
            "required" if field.required else default(field),
        )
        for field in msgspec.structs.fields(config)
    ]


def default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()  # type: ignore[operator]
    return "{}" if value == TopicConfig() else json.dumps(msgspec.to_builtins(value))


@pytest.mark.parametrize(
    ("title", "config", "separator"),
    [("Settings of a broker", BrokerConfig, "_"), ("Settings of a topic", TopicConfig, ".")],
)
def test_every_setting_is_described_with_its_type_unit_and_default(
    title: str, config: type[msgspec.Struct], separator: str
) -> None:
    assert described(title) == rows(config, separator)


def test_every_znode_is_described() -> None:
    known = [
        *paths.PERSISTENT,
        paths.CONTROLLER,
        paths.CONTROLLER_EPOCH,
        paths.REASSIGNMENTS,
        paths.PREFERRED_ELECTION,
        paths.CLUSTER_ID,
        paths.state("T", "P"),  # type: ignore[arg-type]
        paths.consumer("G", "C"),
        paths.consumer_owner("G", "T", "P"),  # type: ignore[arg-type]
        paths.consumer_offset("G", "T", "P"),  # type: ignore[arg-type]
    ]
    found = re.findall(r"^\| `(/\S+)`", section("What is in ZooKeeper"), re.MULTILINE)
    assert [path for path in known if not any(one == path or one.startswith(f"{path}/") for one in found)] == []


def test_the_example_is_a_configuration() -> None:
    example = section("An example").partition("broker.json <<END\n")[2].partition("END\n")[0]
    assert parse(example.encode(), "the example").broker_id == 1
