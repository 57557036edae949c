"""Partitions move to other brokers, whoever dies meanwhile, and lose nothing."""

from __future__ import annotations

import pytest
from moving_partition import load, moving
from sim_brokers import simulate

pytestmark = pytest.mark.slow


def test_a_partition_under_load_moves_and_its_old_replica_leaves_no_files() -> None:
    async def check() -> None:
        async with moving() as test:
            async with load(test):
                await test.ask([2, 3, 4])
                await test.moved([2, 3, 4])
            assert [event["detail"]["replicas"] for event in test.events("assignment-written")] == [
                [1, 2, 3, 4],
                [2, 3, 4],
            ]

    simulate(check)
