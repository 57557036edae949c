"""A second copy of a real broker in Docker: harmless if the broker locks its data directory, and not if it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.cluster.deploy import start_system
from assay.cluster.docker import DockerCluster
from assay.cluster.node import ProcessState
from assay.nemesis.engine.cut_ledger import CutLedger
from assay.nemesis.faults.fault import FaultContext, Injection
from assay.nemesis.faults.start_twice import StartTwice
from assay.nemesis.schedule.schedule import FaultStep
from assay.nemesis.schedule.target import parse_target
from assay.system_under_test.client.consumer import SimpleConsumer
from assay.system_under_test.client.sender import Sender
from assay.system_under_test.deployment import Broker
from assay.system_under_test.process import ProcessRuntime

from helpers.echo_system import until
from helpers.live_cluster import run_of_its_own

SYSTEM = Broker(partitions=1, replication=1, min_insync=1)
SENT = [b"before", b"after"]


async def started_twice(folder: Path, system: Broker) -> tuple[dict[str, Any], bool, list[bytes | None]]:
    """Plays the fault on a cluster of one broker.

    Returns the evidence, whether the first process is the one that was there before, and the values of the log.
    """
    run = run_of_its_own(f"test-twice-{len(system.active_defects)}")
    cluster = DockerCluster(system, {"zookeeper": 1, "broker": 1}, run_id=run, seed=1, state_dir=folder)
    try:
        await cluster.start()
        await start_system(system, cluster, 60, lambda line: None)
        node = next(node for node in cluster.nodes if node.role == "broker")
        first = await node.process()
        address = [f"{node.address}:{system.port('broker')}"]
        runtime = ProcessRuntime(None)
        producer, consumer = Sender(address, runtime=runtime), SimpleConsumer(address, runtime=runtime)
        await producer.send(system.topic, 0, [(None, SENT[0])])

        fault = StartTwice()
        step = FaultStep(0.0, fault.name, parse_target(node.name), 1.0, {})
        injection = Injection(1, step, (node,), FaultContext(cluster, system, CutLedger(cluster)))
        await fault.inject(injection)

        async def decided() -> bool:
            """A copy that merely lives may not have reached the directory: a slow machine takes seconds to start it."""
            await fault.observe(injection)
            copy = injection.evidence[node.name]["second"]
            return fault.proof(injection).took_effect and (not copy["alive"] or copy["changes"] > 0)

        await until(decided, "the copy has ended, or has changed files", seconds=150)
        await fault.heal(injection)

        alive = await node.process()
        values: list[bytes | None] = []
        if not system.active_defects:  # what a second broker has done to a log may keep clients waiting
            await producer.send(system.topic, 0, [(None, SENT[1])])
            values = [record.value for record in (await consumer.fetch(system.topic, 0, 0)).messages]
        await producer.close()
        await consumer.close()
        same = alive.state is ProcessState.RUNNING and alive.incarnation == first.incarnation
        return injection.evidence[node.name]["second"], same, values
    finally:
        await cluster.close()


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_a_second_broker_is_refused_and_changes_no_file_of_the_first_which_lives_on(tmp_path: Path) -> None:
    copy, same, values = asyncio.run(started_twice(tmp_path, SYSTEM))
    assert copy == {"incarnation": None, "alive": False, "exit_status": 1, "changes": 0, "not_proved": None}
    assert same
    assert values == SENT


@pytest.mark.docker
@pytest.mark.usefixtures("engine_needed")
def test_without_the_lock_of_the_directory_the_second_broker_is_seen_to_change_files(tmp_path: Path) -> None:
    copy, _, _ = asyncio.run(started_twice(tmp_path, SYSTEM.with_defect("no-directory-lock")))
    assert copy["changes"] > 0
