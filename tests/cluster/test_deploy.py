"""Bringing a system up: in order, ready before the next, and a clear error when it does not come up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from assay.cluster.containers import Container, Job
from assay.cluster.deploy import start_system
from assay.cluster.node import Cluster, Node
from assay.cluster.sim.cluster import SimCluster
from assay.cluster.sim.loop import SimLoop
from assay.cluster.system import DeploymentError


class Slow:
    """Every node listens two seconds after its start; ``order`` records what happened."""

    name = "slow"
    roles = ("zookeeper", "store", "proxy")
    defects: Sequence[str] = ()
    source: Sequence[str] = ()

    def __init__(self) -> None:
        self.order: list[str] = []

    def port(self, role: str) -> int:
        return 7000

    def argv(self, node: Node) -> Sequence[str]:
        return [node.name]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        return {}

    def event_log(self, node: Node) -> str:
        return "/events.jsonl"

    def logs(self, node: Node) -> Sequence[str]:
        return ()

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        self.order.append(f"start {argv[0]}")
        await asyncio.sleep(2)

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        await asyncio.start_server(serve, "0.0.0.0", 7000)
        self.order.append(f"listen {argv[0]}")
        await asyncio.get_running_loop().create_future()
        return 0

    async def ready(self, node: Node) -> bool:
        _, writer = await asyncio.open_connection(node.address, 7000)
        writer.close()
        return True

    async def set_up(self, cluster: Cluster) -> None:
        self.order.append("set up")

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        return None

    def keys(self) -> Sequence[str]:
        return ()


def deploy(system: Slow, deadline: float = 30, zookeepers: int = 1) -> list[str]:
    heard: list[str] = []

    async def main() -> None:
        cluster = SimCluster(system, {"zookeeper": zookeepers, "store": 2, "proxy": 1}, 1)
        try:
            await start_system(system, cluster, deadline, heard.append)
        finally:
            await cluster.close()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(main())
    return heard


def test_roles_start_in_order_and_each_waits_for_the_one_before() -> None:
    system = Slow()
    heard = deploy(system)
    assert system.order == [
        "start n1", "start n2", "listen n1", "listen n2", "start proxy1", "listen proxy1", "set up",
    ]  # fmt: skip
    assert heard == ["starting zookeeper: zk1", "starting store: n1, n2", "starting proxy: proxy1", "setting up slow"]


class Prepared(Slow):
    """Has jobs before and between its roles."""

    jobs = (Job("empty", Container()), Job("migrate", Container(), after="store"))


class Working(SimCluster):
    async def run_job(self, job: Job) -> None:
        assert isinstance(self._system, Slow)
        self._system.order.append(f"job {job.name}")


def test_a_job_ends_before_the_next_role_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeploymentError, match=r"cannot run the job empty: choose --cluster=docker"):
        deploy(Prepared())
    monkeypatch.setattr(f"{__name__}.SimCluster", Working)
    system = Prepared()
    heard = deploy(system)
    assert system.order == [
        "job empty", "start n1", "start n2", "listen n1", "listen n2", "job migrate", "start proxy1", "listen proxy1",
        "set up",
    ]  # fmt: skip
    assert [line for line in heard if "job" in line] == ["running the job empty", "running the job migrate"]


def test_a_job_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting(SimCluster):
        async def run_job(self, job: Job) -> None:
            await asyncio.sleep(1000)

    monkeypatch.setattr(f"{__name__}.SimCluster", Waiting)
    with pytest.raises(DeploymentError, match=r"the job empty had not ended 30 s after the start"):
        deploy(Prepared())


class Impatient(Slow):
    """Each process ends at its first start, as an application that does not find its database."""

    node_counts: ClassVar = {"store": 2, "proxy": 1}
    restarted: ClassVar = True

    def container(self, role: str, index: int) -> Container:
        return Container(restarted=self.restarted)

    async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
        if f"start {argv[0]}" not in self.order:
            self.order.append(f"start {argv[0]}")
            return 1
        return await super().entry(runtime, argv)


def test_a_process_that_ends_before_it_is_ready_is_started_again_if_its_container_says_so() -> None:
    heard = deploy(Impatient())
    assert "the process of proxy1 ended before it was ready; it is started again" in heard

    class Final(Impatient):
        restarted = False

    with pytest.raises(DeploymentError, match=r"\(store\): its process ended before it was ready"):
        deploy(Final())


def test_a_node_that_never_gets_ready_is_named_with_what_was_seen_last() -> None:
    with pytest.raises(DeploymentError, match=r"n. \(store\) at 198.18.0.. was not ready within 1 s.*refused"):
        deploy(Slow(), deadline=1)


def test_a_node_that_answers_not_ready_and_one_that_does_not_answer() -> None:
    class NotReady(Slow):
        async def ready(self, node: Node) -> bool:
            return False

    class Silent(Slow):
        async def ready(self, node: Node) -> bool:
            await asyncio.sleep(1000)
            return True

    class Forgetful(Slow):
        async def ready(self, node: Node) -> Any:
            return None

    with pytest.raises(DeploymentError, match="it answered that it is not ready"):
        deploy(NotReady(), deadline=5)
    with pytest.raises(DeploymentError, match=r"ready\(\) returned None"):
        deploy(Forgetful(), deadline=5)
    with pytest.raises(DeploymentError, match="it did not answer"):
        deploy(Silent(), deadline=5)


def test_a_process_that_dies_is_reported_at_once_with_its_traceback() -> None:
    class Dying(Slow):
        async def entry(self, runtime: Any, argv: Sequence[str]) -> int:
            raise RuntimeError("no disk")

    with pytest.raises(DeploymentError, match=r"(?s)n1.*ended before it was ready.*RuntimeError: no disk"):
        deploy(Dying(), deadline=1000)


def test_a_file_without_an_absolute_path_is_an_error_that_names_it() -> None:
    class Relative(Slow):
        def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
            return {"etc/slow": b""}

    with pytest.raises(DeploymentError, match=r"(?s)'etc/slow' is not an absolute path"):
        deploy(Relative(), deadline=1000)


def test_a_set_up_that_hangs_ends_at_the_deadline() -> None:
    class Hanging(Slow):
        async def set_up(self, cluster: Cluster) -> None:
            await asyncio.sleep(1000)

    with pytest.raises(DeploymentError, match="setting up slow was not done"):
        deploy(Hanging(), deadline=10)


def test_a_bug_in_ready_is_waited_for_and_named_with_its_node_and_cause() -> None:
    class Buggy(Slow):
        async def ready(self, node: Node) -> bool:
            raise KeyError("oops")

    with pytest.raises(
        DeploymentError, match=r"^n. .*not ready within 30 s; .*ready\(\) raised KeyError: 'oops'$"
    ) as raised:
        deploy(Buggy())
    assert isinstance(raised.value.__cause__, KeyError)
