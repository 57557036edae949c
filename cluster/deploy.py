"""Brings a system up on a cluster whose nodes exist: role by role, each ready before the next, then its set-up.

The same in every world; what ready means is the system's to say, and for ZooKeeper ``assay.cluster.zookeeper``'s.
"""

import asyncio
from collections.abc import Callable

from assay.cluster import zookeeper
from assay.cluster.node import Cluster, Node, NodeError, ProcessState, by_role
from assay.cluster.system import ZOOKEEPER_ROLE, DeploymentError, System

POLL = 0.1
"""Seconds between two questions."""


async def start_system(system: System, cluster: Cluster, deadline: float, progress: Callable[[str], None]) -> None:
    """Starts every node of the system's roles, in their order, and sets the system up.

    ``deadline``: seconds for all of it. ``progress`` is called for each role. Raises :class:`DeploymentError`.
    """
    end = asyncio.get_running_loop().time() + deadline
    for role in system.roles:
        nodes = by_role(cluster, role)
        if not nodes:
            continue
        progress(f"starting {role}: {', '.join(node.name for node in nodes)}")
        await asyncio.gather(*(node.start() for node in nodes))
        await asyncio.gather(*(_until_ready(system, cluster, node, end, deadline) for node in nodes))
    progress(f"setting up {system.name}")
    try:
        async with asyncio.timeout_at(end):
            await system.set_up(cluster)
    except TimeoutError:
        raise DeploymentError(
            f"setting up {system.name} was not done {deadline:g} s after the start, though all nodes were ready; "
            "read their logs"
        ) from None


async def _until_ready(system: System, cluster: Cluster, node: Node, end: float, deadline: float) -> None:
    loop = asyncio.get_running_loop()
    seen = "it was not asked yet"
    while loop.time() < end:
        if (await node.process()).state is ProcessState.DEAD:
            reason = _why(cluster, node)
            raise DeploymentError(f"{node.name} ({node.role}): its process ended before it was ready. {reason}")
        try:
            async with asyncio.timeout_at(end):
                answer = await _ready(system, node)
            if answer:
                return
            seen = "it answered that it is not ready" if answer is False else f"ready() returned {answer!r}"
        except TimeoutError:
            seen = "it did not answer"
        except OSError as error:
            seen = f"{type(error).__name__}: {error}"
        except (NodeError, DeploymentError):
            raise
        except Exception as error:
            raise DeploymentError(f"ready() of {node.name} raised {type(error).__name__}: {error}") from error
        await asyncio.sleep(POLL)
    raise DeploymentError(
        f"{node.name} ({node.role}) at {node.address} was not ready within {deadline:g} s; last seen: {seen}. "
        f"{_why(cluster, node)}"
    )


async def _ready(system: System, node: Node) -> bool:
    if node.role == ZOOKEEPER_ROLE:
        return await zookeeper.ready(node)
    return await system.ready(node)


def _why(cluster: Cluster, node: Node) -> str:
    """What a simulated node knows of its own end, else where to look."""
    for crash in reversed(getattr(cluster, "crashes", ())):
        if crash.node == node.name:
            return f"It crashed:\n{crash.traceback}"
    return f"Read its logs ({node.name}), or run again with --keep-cluster=failed and look at the node."
