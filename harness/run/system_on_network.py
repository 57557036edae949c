"""A system whose network calls run on the network of its nodes, because the harness may be unable to reach it.

That is so for engines in a virtual machine (Docker Desktop, Colima), rootless engines and engines on other machines.
The cluster then starts a container for clients. A worker process in it runs the workload's clients, and the methods of
the system that connect to nodes.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.cluster.node import Cluster, Node
from assay.cluster.system import (
    DeploymentError,
    Software,
    SupportsClientSoftware,
    SupportsZooKeeperClient,
    System,
    WorkerDescription,
)
from assay.harness.remote import server
from assay.harness.remote.debugger import has_terminal
from assay.harness.remote.network_worker import NetworkWorker
from assay.harness.remote.system_calls import NETWORK_METHODS, SystemCall
from assay.harness.run.client_nodes import OWN_PACKAGE, pin_packages, require_importable
from assay.harness.run.imported_packages import find_imported_packages
from assay.harness.run.settings import DOCKER, HERE, Settings


class _PytestModule:
    """Stands for the modules of ``assay`` that a test module imports: they import pytest."""

    python = ("pytest",)


def may_leave_harness(settings: Settings) -> bool:
    """Returns whether clients and network calls of a run may have to leave the harness's process."""
    return settings.cluster == DOCKER and settings.clients != HERE


class SystemOnNetwork:
    """A system, and the worker process that calls its methods once :meth:`attach` was called.

    Satisfies :class:`System`, and every optional protocol that the system satisfies.
    """

    name: str
    roles: Sequence[str]
    defects: Sequence[str]
    source: Sequence[str]
    port: Callable[[str], int]
    argv: Callable[[Node], Sequence[str]]
    files: Callable[[Node, Cluster], Mapping[str, bytes]]
    ready: Callable[[Node], Coroutine[Any, Any, bool]]
    event_log: Callable[[Node], str | None]
    logs: Callable[[Node], Sequence[str]]
    entry: Callable[[Any, Sequence[str]], Coroutine[Any, Any, int]]
    set_up: Callable[[Cluster], Coroutine[Any, Any, None]]
    find: Callable[..., Coroutine[Any, Any, Node | None]]
    keys: Callable[[], Sequence[str]]

    def __init__(self, system: System, client: type[Any] | None) -> None:
        """``client``: class of the clients that run in the worker process; None if only the harness connects."""
        self.inner = system
        self._client = client
        self._worker: tuple[NetworkWorker, Cluster, Any] | None = None
        for name in dir(system):
            if not name.startswith("_") and name not in vars(SystemOnNetwork):
                own = getattr(system, name)
                vars(self)[name] = self._make_method(name, own) if name in NETWORK_METHODS else own

    def __repr__(self) -> str:
        return repr(self.inner)

    def describe_worker(self) -> WorkerDescription:
        """Returns the worker process, with all of ``assay`` and the modules next to the system's and the client's.

        Raises ``DeploymentError`` if a container could not import the client.
        """
        inner, modules, name = self.inner, [type(self.inner).__module__], None
        if self._client is not None:
            modules.append(self._client.__module__)
            try:
                name = require_importable(self._client)
            except ValueError as error:
                raise DeploymentError(str(error)) from error
        zookeeper = inner.zookeeper_client if isinstance(inner, SupportsZooKeeperClient) else None
        package = Path(sys.modules[OWN_PACKAGE].__file__ or "").parent
        source = [f"{OWN_PACKAGE}/{folder.name}" for folder in package.iterdir() if (folder / "__init__.py").is_file()]
        source = [*sorted(source), *inner.source]
        for module in modules:
            source += _list_neighbours(module.partition(".")[0])
        own = inner.client_software.python if isinstance(inner, SupportsClientSoftware) else ()
        declared = () if self._client is None else pin_packages(self._client)
        packages = [*own, *declared, *find_imported_packages(modules), *pin_packages(_PytestModule)]
        return WorkerDescription(
            server.make_worker_command(
                name, zookeeper, streams=True, terminal=secrets.token_hex(16) if has_terminal() else ""
            ),
            tuple(dict.fromkeys(source)),
            Software(python=tuple(dict.fromkeys(packages))),
        )

    def attach(self, worker: NetworkWorker, cluster: Cluster, runtime: Any) -> None:
        """Lets the worker process call the methods from now on. ``runtime``: the runtime of the harness's clients."""
        self._worker = (worker, cluster, runtime)

    async def forward_port(self, node: Node, port: int) -> asyncio.Server:
        """Forwards a free port of 127.0.0.1 to a node's port. Requires :meth:`attach`."""
        assert self._worker is not None, "attach comes first"
        worker = self._worker[0]

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                far_reader, far_writer = await worker.relay(node.address, port)
            except OSError:
                writer.close()
                return
            await asyncio.gather(server.copy_stream(reader, far_writer), server.copy_stream(far_reader, writer))

        return await asyncio.start_server(accept, "127.0.0.1", 0)

    def _make_method(self, name: str, own: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            if self._worker is None:
                return await own(*arguments, **named)
            worker, cluster, runtime = self._worker
            return await worker.call(SystemCall(self.inner, name, arguments, named), cluster, runtime)

        return call


async def start_worker(
    system: SystemOnNetwork, cluster: Cluster, make_runtime: Callable[[], Any]
) -> NetworkWorker | None:
    """Starts the worker process if the cluster has a container for it, and lets it do the system's network calls.

    ``make_runtime`` returns the runtime of the harness's clients. Returns None if this machine reaches the nodes'
    addresses. Raises ``NodeError``.
    """
    command = getattr(cluster, "worker_command", None)
    if command is None:
        return None
    worker = NetworkWorker(command)
    try:
        await worker.start()
    except BaseException:
        await worker.close()
        raise
    system.attach(worker, cluster, make_runtime())
    for node in (*cluster.nodes, *cluster.spares):
        node.dial = worker.relay  # type: ignore[attr-defined]
    return worker


def _list_neighbours(name: str) -> list[str]:
    """Returns the loaded modules and packages of one folder of the Python path: those next to the module ``name``."""
    if name == OWN_PACKAGE:
        return []
    place = _find_place(name)
    if place is None:
        return []
    others = (one for one in list(sys.modules) if "." not in one and one not in ("conftest", "__main__", OWN_PACKAGE))
    installed = set(metadata.packages_distributions())
    return sorted(one for one in others if one not in installed and _find_place(one) == place)


def _find_place(name: str) -> Path | None:
    """Returns the folder of the Python path that contains a loaded module or package; None if it has no file."""
    module = sys.modules.get(name)
    folders = list(getattr(module, "__path__", ()))  # a package without __init__.py has no file
    if folders:
        return Path(folders[0]).parent
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).parent
