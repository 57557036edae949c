"""The system of docs/guide/real_nodes.md, "In the simulation", serves, its counts survive a power loss, and its test
passes, but not without its fsync.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop

from helpers.counter_system import ask

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "real_nodes.md"


def code() -> str:
    section = PAGE.read_text().partition("## 8.")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


def explained() -> Any:
    names: dict[str, Any] = {"__name__": "explained"}
    exec(code(), names)
    return names["Counter"]()


def test_the_test_of_the_page_passes_and_is_red_without_the_fsync(pytester: pytest.Pytester) -> None:
    written = "await file.fsync()"
    assert written in code()
    pytester.makepyfile(test_counter=code(), test_lossy=code().replace(written, "await asyncio.sleep(0.001)"))
    options = ("--cluster=sim", "--nemesis=power-loss", "--time-limit=8", "--rate=50", "--seed=3", "-p", "no:xdist")
    result = pytester.runpytest_subprocess(*options, "--reports=never")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_lossy*", "FAIL counter-duplicate: *"])


def test_the_system_of_the_page_counts_and_survives_a_power_loss() -> None:
    async def main() -> list[str]:
        system = explained()
        cluster = SimCluster(system, {"server": 3}, seed=1)
        try:
            await start_system(system, cluster, 20, lambda _: None)
            node = cluster.nodes[1]
            answers = [node.name, await ask(node, "add"), await ask(node, "add"), await ask(cluster.nodes[0], "add")]
            await node.power_loss()
            await node.start()
            while True:
                try:
                    return [*answers, await ask(node, "add")]
                except OSError:
                    await asyncio.sleep(0.1)
        finally:
            await cluster.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:
        assert runner.run(main()) == ["n2", "1", "2", "1", "3"]
