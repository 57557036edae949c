"""The workload of Redis Cluster: whom a client asks, what becomes of each answer, and how nodes become a cluster."""

from __future__ import annotations

import asyncio
import re
from binascii import crc_hqx
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from assay.checkers.judging.contract import Contract
from assay.cluster.sim.loop import SimLoop
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.run.settings import Settings
from assay.workloads import test_redis_cluster as redis
from assay.workloads.generic import sets
from assay.workloads.systems import redis_cluster
from assay.workloads.systems.redis_cluster import KEYS, SLOTS, RedisCluster

KEY = KEYS[0]
FIRST, SECOND = "127.0.0.1:7001", "127.0.0.1:7002"
MOVED, ASK = (f"-{word} 7452 {SECOND}\r\n" for word in ("MOVED", "ASK"))
Asked = list[tuple[str, str]]


def words(data: bytes) -> str:
    """Returns what was sent, without lengths."""
    return " ".join(re.findall(r"\$\d+\r\n(\S+)\r\n", data.decode()))


def played(
    first: Sequence[str], second: Sequence[str], operations: Sequence[Operation], waits: bool = False
) -> tuple[list[Completion], Asked]:
    """Returns a client's completions of these operations, and its requests by node.

    The client knows the first of two nodes. Each node has an answer for each connection, in order.
    """
    asked: Asked = []

    def node(port: str, answers: Sequence[str]) -> Callable[..., Coroutine[Any, Any, None]]:
        left = list(answers)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((port, words(await reader.read(1000))))
            writer.write(left.pop(0).encode())
            writer.close()

        return serve

    async def main() -> list[Completion]:
        for address, answers in ((FIRST, ["+PONG\r\n", *first]), (SECOND, second)):
            host, port = address.split(":")
            await asyncio.start_server(node(address, answers), host, int(port))
        client, options = redis.RedisClusterElements(), {"wait": True} if waits else {}
        await client.open(SimpleNamespace(address=FIRST, options=options), None)  # type: ignore[arg-type]
        return [await client.invoke(operation) for operation in operations]

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        completions = runner.run(main())
    assert asked.pop(0) == (FIRST, "PING")
    return completions, asked


def add(element: int, key: str = KEY) -> Operation:
    return Operation(sets.ADD, key, element)


def outcomes(completions: Sequence[Completion]) -> list[Outcome]:
    return [completion.outcome for completion in completions]


def test_a_client_asks_whom_it_was_sent_to_from_then_on() -> None:
    completions, asked = played([MOVED], [":1\r\n", ":1\r\n"], [add(7), add(8)])
    assert completions == [Completion(Outcome.OK, 1)] * 2
    assert asked == [(FIRST, f"SADD {KEY} 7"), (SECOND, f"SADD {KEY} 7"), (SECOND, f"SADD {KEY} 8")]


def test_another_key_may_be_elsewhere() -> None:
    completions, asked = played([MOVED, ":1\r\n"], [":1\r\n"], [add(7), add(8, KEYS[1])])
    assert outcomes(completions) == [Outcome.OK] * 2
    assert asked[-1] == (FIRST, f"SADD {KEYS[1]} 8")


def test_a_slot_on_its_way_is_asked_for_elsewhere_this_time_alone() -> None:
    completions, asked = played([ASK, ":1\r\n"], ["+OK\r\n:1\r\n"], [add(7), add(8)])
    assert completions == [Completion(Outcome.OK, 1)] * 2
    assert asked == [(FIRST, f"SADD {KEY} 7"), (SECOND, f"ASKING SADD {KEY} 7"), (FIRST, f"SADD {KEY} 8")]


@pytest.mark.parametrize("refusal", ["CLUSTERDOWN The cluster is down", "NOREPLICAS Not enough", "LOADING Redis is"])
def test_what_is_refused_has_failed_and_the_next_question_goes_to_the_own_node(refusal: str) -> None:
    completions, asked = played([MOVED, ":1\r\n"], [f"-{refusal}\r\n"], [add(7), add(8)])
    assert outcomes(completions) == [Outcome.FAIL, Outcome.OK]
    assert completions[0].error == refusal.split()[0]
    assert asked[-1] == (FIRST, f"SADD {KEY} 8")


def test_nodes_that_send_a_client_back_and_forth_have_done_nothing() -> None:
    back = f"-MOVED 7452 {FIRST}\r\n"
    (completion,), asked = played([MOVED] * 3, [back] * 3, [add(7)])
    assert (completion.outcome, completion.error) == (Outcome.FAIL, "MOVED")
    assert len(asked) == redis.REDIRECTIONS


@pytest.mark.parametrize("broken", ["", "$5\r\nhal"])
def test_half_an_answer_is_indeterminate(broken: str) -> None:
    completions, _ = played([broken], [], [add(7)])
    assert outcomes(completions) == [Outcome.INFO]


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (":1\r\n:1\r\n", Outcome.OK),
        (":1\r\n:2\r\n", Outcome.OK),
        (":1\r\n:0\r\n", Outcome.INFO),
        (":1\r\n-UNBLOCKED force unblock from blocking operation\r\n", Outcome.INFO),
        (":1\r\n", Outcome.INFO),
        ("-CLUSTERDOWN Hash slot not served\r\n:0\r\n", Outcome.FAIL),
    ],
)
def test_an_add_that_waits_is_acknowledged_once_a_replica_has_it(answers: str, outcome: Outcome) -> None:
    completions, asked = played([answers], [], [add(7)], waits=True)
    assert outcomes(completions) == [outcome]
    assert asked == [(FIRST, f"SADD {KEY} 7 WAIT 1 500")]


def test_a_read_shows_the_elements_of_its_key() -> None:
    read = Operation(sets.READ, KEY)
    (completion,), asked = played(["*2\r\n$2\r\n10\r\n$1\r\n9\r\n"], [], [read], waits=True)
    assert (completion.result, asked) == ([9, 10], [(FIRST, f"SMEMBERS {KEY}")])
    seen = redis.RedisClusterElements.effects(Completed(0, 0, "w0", read, completion, 0, 1))
    assert [(effect.kind, effect.key, effect.value) for effect in seen] == [
        ("set-read", KEY, 9),
        ("set-read", KEY, 10),
    ]


def nodes_of(servers: int = 3, replicas: int = 3) -> Any:
    """A cluster of them, and no more than its addresses."""
    roles = ["server"] * servers + ["replica"] * replicas
    nodes = [SimpleNamespace(role=role, address=f"10.0.0.{number}") for number, role in enumerate(roles, 1)]
    return SimpleNamespace(nodes=nodes)


def test_each_node_has_its_data_in_the_folder_that_it_makes() -> None:
    cluster, system = nodes_of(), RedisCluster().with_setting("cluster-node-timeout", "1000")
    (text,) = (data.decode() for data in system.files(cluster.nodes[4], cluster).values())
    assert "cluster-enabled yes\n" in text
    assert text.index("cluster-node-timeout 2000\n") < text.index("cluster-node-timeout 1000\n"), "the last one holds"
    folder = RedisCluster().data_folder(cluster.nodes[4])
    assert f"dir {folder}\n" in text
    (path,) = system.files(cluster.nodes[4], cluster)
    assert system.argv(cluster.nodes[4])[-1] == f"mkdir -p {folder} && exec redis-server {path}"
    with pytest.raises(ValueError, match="redis-cluster has no setting maxmemory here; it has "):
        RedisCluster().with_setting("maxmemory", "1")


def slot(key: str) -> int:
    return crc_hqx(key.encode(), 0) % SLOTS


class Nodes:
    """The nodes of a cluster, asked as :func:`ask` does. A replica knows its master when it is asked twice."""

    def __init__(self) -> None:
        self.slots: dict[str, tuple[int, int]] = {}
        self.masters: dict[str, str] = {}
        self.met: set[str] = set()
        self.asked = 0

    async def ask(self, address: str, *words: object, seconds: float = 1.0) -> Any:
        match words:
            case "CLUSTER", "ADDSLOTSRANGE", int(low), int(high):
                self.slots[address] = (low, high)
            case "CLUSTER", "MEET", host, port:
                self.met |= {address, f"{host}:{port}"}
            case "CLUSTER", "MYID":
                return f"id of {address}"
            case "CLUSTER", "REPLICATE", master:
                self.asked += 1
                if self.asked % 2:
                    raise ValueError(f"ERR Unknown node {master}")
                self.masters[address] = str(master)
            case "CLUSTER", "INFO":
                return "cluster_state:ok\r\ncluster_known_nodes:6\r\n"
            case "INFO", "replication":
                return "master_link_status:up\r\n"
            case _:
                raise AssertionError(words)
        return "OK"


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes()
    monkeypatch.setattr(redis_cluster, "ask", nodes.ask)
    return nodes


@pytest.mark.parametrize(("servers", "replicas"), [(3, 3), (3, 6), (5, 5)])
def test_masters_have_all_slots_and_replicas_one_of_them_each(nodes: Nodes, servers: int, replicas: int) -> None:
    cluster = nodes_of(servers, replicas)
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(RedisCluster().set_up(cluster))
    addresses = [f"{node.address}:6379" for node in cluster.nodes]
    assert nodes.met == set(addresses)
    assert list(nodes.slots) == addresses[:servers]
    assert [one for low, high in nodes.slots.values() for one in range(low, high + 1)] == list(range(SLOTS))
    assert list(nodes.masters) == addresses[servers:]
    followed = [list(nodes.masters.values()).count(f"id of {master}") for master in addresses[:servers]]
    assert followed == [replicas // servers] * servers


def test_keys_are_spread_over_three_masters(nodes: Nodes) -> None:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(RedisCluster().set_up(nodes_of()))
    owners = [next(one for one, (low, high) in nodes.slots.items() if low <= slot(key) <= high) for key in KEYS]
    assert sorted(owners) == sorted(nodes.slots)


@pytest.mark.parametrize(
    ("info", "replication", "ready"),
    [
        ("cluster_state:fail\r\ncluster_known_nodes:1\r\n", "role:master\r\n", True),
        ("cluster_state:fail\r\ncluster_known_nodes:6\r\n", "role:master\r\n", False),
        ("cluster_state:ok\r\ncluster_known_nodes:6\r\n", "role:master\r\n", True),
        ("cluster_state:ok\r\ncluster_known_nodes:6\r\n", "role:slave\r\nmaster_link_status:down\r\n", False),
        ("cluster_state:ok\r\ncluster_known_nodes:6\r\n", "role:slave\r\nmaster_link_status:up\r\n", True),
        ("cluster_state:fail\r\ncluster_known_nodes:12\r\n", "role:master\r\n", False),
    ],
)
def test_a_node_is_ready_alone_or_with_the_others(
    monkeypatch: pytest.MonkeyPatch, info: str, replication: str, ready: bool
) -> None:
    async def ask(address: str, *words: object) -> str:
        return info if words[0] == "CLUSTER" else replication

    monkeypatch.setattr(redis_cluster, "ask", ask)
    assert asyncio.run(RedisCluster().ready(nodes_of().nodes[0])) is ready


@pytest.mark.parametrize(
    ("says", "leader"),
    [
        ({1: "owns", 2: "MOVED 7452 10.0.0.1:6379"}, 1),
        ({1: "owns", 2: "MOVED 7452 10.0.0.4:6379", 3: "MOVED 7452 10.0.0.4:6379", 4: "owns"}, 4),
        ({1: "CLUSTERDOWN The cluster is down", 4: "owns"}, 4),
        ({}, None),
    ],
)
def test_the_leader_of_a_key_is_whom_most_nodes_name(
    monkeypatch: pytest.MonkeyPatch, says: dict[int, str], leader: int | None
) -> None:
    async def ask(address: str, *words: object, seconds: float = 1.0) -> int:
        assert words == ("SCARD", KEY)
        said = says.get(int(address.split(":")[0].split(".")[-1]))
        if said is None:
            raise TimeoutError
        if said != "owns":
            raise ValueError(said)
        return 0

    monkeypatch.setattr(redis_cluster, "ask", ask)
    cluster = nodes_of()
    found = asyncio.run(RedisCluster().find(cluster, "leader", KEY))
    assert found is (None if leader is None else cluster.nodes[leader - 1])


def test_it_is_for_real_nodes_alone_and_reads_each_set_in_the_end() -> None:
    from assay.harness.run.experiment import find_experiment

    found = find_experiment(redis.test_redis_cluster)
    assert found is not None
    assert found.why_not_simulated == "redis-cluster has no `entry`, so it cannot be simulated"
    assert isinstance(found.contract, Contract)
    assert found.contract.forbids("set-lost")
    assert {"power-loss", "outage", "outage-power-loss"} == set(found.contract.may_stall), "all nodes are down"
    assert [mix.name for mix in found.mixes] == ["wait"]
    assert found.generator(Settings(seed=1)) is not None
