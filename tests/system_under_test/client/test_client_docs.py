"""The page about the client library: its examples run, and its table says what the code does."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from assay.system_under_test.client.errors import (
    OFFSET_COMMIT_NOT_DONE,
    OFFSET_COMMIT_WORTH_REPEATING,
    PRODUCE_NOT_DONE,
    PRODUCE_WORTH_REPEATING,
    classify_error,
)
from assay.system_under_test.deployment import Broker
from assay.system_under_test.protocol.errors import ErrorCode

from helpers.sim_brokers import brokers, simulate

PAGE = (Path(__file__).parents[3] / "docs" / "broker" / "client.md").read_text()


SECTIONS = ("Producer", "A producer with a queue", "SimpleConsumer", "GroupConsumer", "Settings")
"""Whose examples are run here; others need another cluster, and are run elsewhere."""


def examples() -> list[tuple[str, str]]:
    """Heading and code of each, in order."""
    found = []
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        heading = section.splitlines()[0]
        if heading.startswith(SECTIONS):
            found += [(heading, code) for code in re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)]
    return found


def test_the_examples_run_one_after_the_other() -> None:
    async def main() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            names: dict[str, Any] = {"bootstrap": cluster.bootstrap, "runtime": cluster.cluster.harness_runtime()}
            ran = 0
            for heading, code in examples():
                unit = compile(code, heading, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                result = eval(unit, names)
                if inspect.isawaitable(result):
                    await result
                ran += 1
            assert ran == 9
            await names["producer"].close()

    simulate(main)


def cells(row: str) -> tuple[str, str]:
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    return cells[1], cells[2]


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_the_table_of_errors_is_that_of_the_code(code: ErrorCode) -> None:
    if code is ErrorCode.NONE:
        return
    produce = classify_error(code, PRODUCE_NOT_DONE).value + (
        ", tried again" if code in PRODUCE_WORTH_REPEATING else ""
    )
    again = ", tried again" if code in OFFSET_COMMIT_WORTH_REPEATING else ""
    commit = classify_error(code, OFFSET_COMMIT_NOT_DONE).value + again
    rows = [row for row in PAGE.splitlines() if row.startswith(f"| {code.value} {code.name} ")]
    if rows:
        assert cells(rows[0]) == (produce, commit)
        return
    [others] = [row for row in PAGE.splitlines() if row.startswith("| any other code ")]
    exceptions = [{int(number) for number in re.findall(r"\d+", cell)} for cell in cells(others)]
    assert (code.value in exceptions[0], code.value in exceptions[1]) == (produce != "unknown", commit != "unknown")
