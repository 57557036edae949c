"""Starts a system on the nodes of a cluster: role by role, each ready before the next starts, then its ``set_up``.

The steps are the same in every kind of cluster. The system decides when a node is ready. For
ZooKeeper's nodes, ``assay.cluster.zookeeper`` decides it.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from assay.cluster import zookeeper
from assay.cluster.checked_methods import wrap_errors_of
from assay.cluster.containers import SupportsContainers, SupportsJobContainers, SupportsJobs
from assay.cluster.node import Cluster, Node, NodeError, ProcessState, SupportsParts, by_role
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, DeploymentError, System

USER_ERRORS = (AttributeError, ImportError, NameError)
"""Errors in the user's code. They cannot disappear when ``ready`` is called again."""
READY_INTERVAL = 0.1
"""Seconds between two readiness checks."""
RESTART_INTERVAL = 1.0
"""Seconds until a process that has ended before it was ready is started again."""
ENDED_AGAIN = "its process ended, and was started again"


@dataclass(frozen=True)
class _ReadyDeadline:
    """Deadline until which a node must be ready.

    ``end``: on the loop's clock. ``seconds``: from the start, for messages. ``progress``: reports errors of ``ready``.
    """

    end: float
    seconds: float
    progress: Callable[[str], None]


async def start_system(system: System, cluster: Cluster, deadline: float, progress: Callable[[str], None]) -> None:
    """Starts every node of the system's roles, in their order, with its jobs between them, and sets the system up.

    ``deadline``: maximum seconds for all of it. ``progress`` is called for each role. Raises :class:`DeploymentError`.
    """
    end = asyncio.get_running_loop().time() + deadline
    waiting = _ReadyDeadline(end, deadline, progress)
    await _run_jobs(system, cluster, waiting, None)
    for role in system.roles:
        if nodes := by_role(cluster, role):
            progress(f"starting {role}: {', '.join(node.name for node in nodes)}")
            await asyncio.gather(*(node.start() for node in nodes))
            await asyncio.gather(*(_wait_until_ready(system, cluster, waiting, node) for node in nodes))
        await _run_jobs(system, cluster, waiting, role)
    progress(f"setting up {system.name}")
    try:
        async with asyncio.timeout_at(end):
            with wrap_errors_of("set_up"):
                await system.set_up(cluster)
    except TimeoutError:
        raise DeploymentError(
            f"setting up {system.name} was not done {deadline:g} s after the start, though all nodes were ready; "
            "read their logs"
        ) from None


async def _run_jobs(system: System, cluster: Cluster, waiting: _ReadyDeadline, after: str | None) -> None:
    """Runs the jobs that start after this role, one after the other. Raises :class:`DeploymentError`."""
    for job in system.jobs if isinstance(system, SupportsJobs) else ():
        if job.after != after:
            continue
        if not isinstance(cluster, SupportsJobContainers):
            raise DeploymentError(f"this kind of cluster cannot run the job {job.name}: choose --cluster=docker")
        waiting.progress(f"running the job {job.name}")
        try:
            async with asyncio.timeout_at(waiting.end):
                await cluster.run_job(job)
        except TimeoutError:
            raise DeploymentError(
                f"the job {job.name} had not ended {waiting.seconds:g} s after the start of the system: if it is a "
                "service that serves, no service may wait for its end"
            ) from None


async def _wait_until_ready(system: System, cluster: Cluster, waiting: _ReadyDeadline, node: Node) -> None:
    last_seen, cause = "it was not asked yet", None
    while asyncio.get_running_loop().time() < waiting.end:
        if (await node.process()).state is ProcessState.DEAD:
            if not _is_restarted(system, node):
                raise _process_ended_error(cluster, node)
            if last_seen != ENDED_AGAIN:
                waiting.progress(f"the process of {node.name} ended before it was ready; it is started again")
            last_seen = ENDED_AGAIN
            await asyncio.sleep(RESTART_INTERVAL)
            await node.start()
        if isinstance(node, SupportsParts):  # a part is one of the node's processes
            for sidecar in node.sidecars:
                if (await node.part(sidecar).process()).state is ProcessState.DEAD:
                    raise DeploymentError(f"{node.name} ({node.role}): its process {sidecar} ended before it was ready")
        try:
            async with asyncio.timeout_at(waiting.end):
                answer = await _is_ready(system, node)
            if answer:
                return
            last_seen = "it answered that it is not ready" if answer is False else f"ready() returned {answer!r}"
        except TimeoutError:
            last_seen = "it did not answer"
        except OSError as error:
            last_seen = f"{type(error).__name__}: {error}"
        except (NodeError, DeploymentError):
            raise
        except USER_ERRORS as error:
            raise DeploymentError(f"ready() of {node.name} raised {type(error).__name__}: {error}") from error
        except Exception as error:  # noqa: BLE001 - an incomplete answer may break the user's parser: report, then ask again
            if cause is None or str(cause) != str(error):
                waiting.progress(f"ready() of {node.name} raised {type(error).__name__}: {error}; it is asked again")
            last_seen, cause = f"ready() raised {type(error).__name__}: {error}", error
        await asyncio.sleep(READY_INTERVAL)
    raise DeploymentError(
        f"{node.name} ({node.role}) at {node.address} was not ready within {waiting.seconds:g} s; "
        f"last seen: {last_seen}"
    ) from cause


def _is_restarted(system: System, node: Node) -> bool:
    """Returns whether the node's container says that its process is started again."""
    if node.role in (ZOOKEEPER_ROLE, CLIENT_ROLE) or not isinstance(system, SupportsContainers):
        return False
    return system.container(node.role, node.index).restarted


async def _is_ready(system: System, node: Node) -> bool:
    if node.role == ZOOKEEPER_ROLE:
        return await zookeeper.is_ready(node)
    answer = system.ready(node)
    if not inspect.isawaitable(answer):
        raise DeploymentError(f"ready() of {node.name} returned {answer!r}, which cannot be awaited: write `async def`")
    return await answer


def _process_ended_error(cluster: Cluster, node: Node) -> DeploymentError:
    """Returns the error for a dead process. A simulated node adds its traceback; a real one's is in its log."""
    crash = next((crash for crash in reversed(getattr(cluster, "crashes", ())) if crash.node == node.name), None)
    if crash is not None and isinstance(crash.error, DeploymentError):
        return crash.error
    ended = f"{node.name} ({node.role}): its process ended before it was ready"
    return DeploymentError(ended if crash is None else f"{ended}. It crashed:\n{crash.traceback}")
