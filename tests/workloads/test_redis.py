"""The workload of Redis: what it sends and understands, how its nodes are configured, and what becomes of an error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.cluster.sim.loop import SimLoop
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.settings import Settings
from assay.workloads import test_redis as redis
from assay.workloads.generic import sets

ADD, READ = Operation("add", sets.KEY, 7), Operation("read", sets.KEY)
PRIMARY, REPLICA = b"*3\r\n$6\r\nmaster\r\n:9\r\n*0\r\n", b"*2\r\n$5\r\nslave\r\n$8\r\n10.0.0.9\r\n"
ELSEWHERE = b"*2\r\n$8\r\n10.0.0.9\r\n$4\r\n6379\r\n"
"""Answer of a sentinel."""


async def against(*answers: bytes) -> tuple[list[bytes], redis.SentinelElements]:
    """A client of one server that gives these answers, one per connection; and what that has received."""
    left, received = list(answers), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1000))
        writer.write(left.pop(0))
        writer.close()

    await asyncio.start_server(serve, "127.0.0.1", 6379)
    client = redis.SentinelElements()
    client.primary, client.sentinels = "127.0.0.1:6379", ("127.0.0.1:6379",)
    return received, client


def run(*answers: bytes, operation: Operation = ADD) -> tuple[Completion, list[bytes], redis.SentinelElements]:
    async def main() -> tuple[Completion, list[bytes], redis.SentinelElements]:
        received, client = await against(*answers)
        return await client.invoke(operation), received, client

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main())


def test_an_add_is_one_command_and_its_answer_is_the_result() -> None:
    completion, received, _ = run(b":1\r\n")
    assert (completion.outcome, completion.result) == (Outcome.OK, 1)
    assert received == [b"*3\r\n$4\r\nSADD\r\n$8\r\nelements\r\n$1\r\n7\r\n"]


def test_a_read_returns_all_elements_and_each_is_an_effect() -> None:
    completion, *_ = run(b"*2\r\n$2\r\n10\r\n$1\r\n9\r\n" + PRIMARY, operation=READ)
    assert completion.result == [9, 10]
    seen = redis.SentinelElements.effects(Completed(0, 0, "w0", READ, completion, 0, 1))
    assert [(effect.kind, effect.value) for effect in seen] == [("set-read", 9), ("set-read", 10)]
    empty, *_ = run(b"*0\r\n" + PRIMARY, operation=READ)
    assert [effect.value for effect in redis.SentinelElements.effects(Completed(0, 0, "w0", READ, empty, 0, 1))] == [
        None
    ]


@pytest.mark.parametrize("refusal", [b"-NOREPLICAS Not enough good replicas to write.\r\n", b"-LOADING Redis is\r\n"])
def test_what_is_refused_has_failed(refusal: bytes) -> None:
    completion, *_ = run(refusal)
    assert completion.outcome is Outcome.FAIL
    assert completion.error == refusal[1:].split()[0].decode()


def test_a_replica_sends_the_client_to_the_primary_that_the_sentinels_name() -> None:
    completion, _, client = run(b"-READONLY You can't write.\r\n", ELSEWHERE)
    assert (completion.outcome, client.primary) == (Outcome.FAIL, "10.0.0.9:6379")


def test_a_refusal_is_one_also_where_no_sentinel_says_who_the_primary_is() -> None:
    """An error that the client did not expect would make the verdict of the run unknown."""
    completion, _, client = run(b"-READONLY You can't write.\r\n", b"")
    assert (completion.outcome, client.primary) == (Outcome.FAIL, "127.0.0.1:6379")


def test_what_a_replica_has_is_no_read_of_the_set() -> None:
    """It was the primary when the client asked who is, and serves reads while it catches up."""
    completion, _, client = run(b"*1\r\n$1\r\n9\r\n" + REPLICA, ELSEWHERE, operation=READ)
    assert (completion.outcome, completion.result, client.primary) == (Outcome.FAIL, None, "10.0.0.9:6379")
    completion, *_ = run(b"-LOADING Redis is\r\n" + REPLICA, operation=READ)
    assert (completion.outcome, completion.error) == (Outcome.FAIL, "LOADING")


@pytest.mark.parametrize("broken", [b"", b"$5\r\nhal"])
def test_half_an_answer_is_indeterminate(broken: bytes) -> None:
    completion, *_ = run(broken)
    assert completion.outcome is Outcome.INFO


def test_replicas_follow_the_first_server_and_a_majority_of_sentinels_has_to_agree() -> None:
    nodes: Any = [
        SimpleNamespace(role=role, address=f"10.0.0.{number}")
        for number, role in enumerate(["server"] * 2 + ["sentinel"] * 5)
    ]
    cluster: Any = SimpleNamespace(nodes=nodes)
    system: Any = redis.Redis().with_setting("min-replicas-to-write", "1")
    first, second, sentinel = (next(iter(system.files(nodes[at], cluster).values())).decode() for at in (0, 1, 2))
    assert "replicaof" not in first
    assert "replicaof 10.0.0.0 6379\n" in second
    assert "min-replicas-to-write 1\n" in first
    assert "sentinel monitor main 10.0.0.0 6379 3\n" in sentinel
    with pytest.raises(ValueError, match="redis has no setting maxmemory here"):
        redis.Redis().with_setting("maxmemory", "1")


def test_it_is_for_real_nodes_alone_and_reads_in_the_end() -> None:
    from assay.harness.run.experiment import find_experiment

    found = find_experiment(redis.test_redis)
    assert found is not None
    assert found.why_not_simulated == "redis has no `entry`, so it cannot be simulated"
    assert isinstance(found.contract, Contract)
    assert found.contract.forbids("set-lost")
    assert found.generator(Settings(seed=1)) is not None
