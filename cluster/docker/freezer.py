"""Freezing a whole container, its init and sshd included, by the engine: the undo is in the journal before the deed."""

from docker.errors import NotFound

from assay.cluster.docker.engine import EngineError, engine, unpause
from assay.cluster.journal import Journal, Unpause
from assay.cluster.node import NodeError


class DockerFreezer:
    """One container's. Satisfies :class:`assay.cluster.ssh.node.Freezer`; errors are :class:`NodeError`."""

    def __init__(self, journal: Journal, container: str, node: str) -> None:
        self._journal = journal
        self._container = container
        self._node = node
        self._entry: int | None = None

    def freeze(self) -> None:
        if self._entry is None:
            self._entry = self._journal.append(Unpause(self._container))
        try:
            with engine() as client:
                client.containers.get(self._container).pause()
        except EngineError as error:
            raise self._error("frozen", error) from error

    def thaw(self) -> None:
        try:
            with engine() as client:
                unpause(client, self._container)
        except EngineError as error:
            raise self._error("thawed", error) from error
        entry, self._entry = self._entry, None
        if entry is not None:
            self._journal.done(entry)

    def frozen(self) -> bool:
        try:
            with engine() as client:
                return client.containers.get(self._container).status == "paused"
        except EngineError as error:
            raise self._error("asked whether it is frozen", error) from error

    def _error(self, what: str, error: EngineError) -> NodeError:
        gone = " (the container is gone)" if isinstance(error.__cause__, NotFound) else ""
        return NodeError(f"{self._node} could not be {what}{gone}: {error}")
