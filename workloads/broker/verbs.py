"""Verbs: base classes of the operations of the broker's clients, and of the clients.

Each kind of operation is a class, a *verb*:

- its docstring describes the argument, and the result of an ok operation
- ``invoke`` executes an operation
- ``effects`` returns the operation's rows for the checks
- ``draw`` returns a generator of such operations, if most workloads use the same one

A client is a list of verbs. They share a :class:`Session`: connections, and the state that one operation leaves for the
next.

The client library classifies errors. A verb handles an error only if the result depends on it. Otherwise the client
handles it: the outcome is ``info`` if the operation may still happen, else ``fail``. A failed read is ``fail`` and has
no effects, because reads change nothing. The library retries definite failures within its time limits, which are below
the usual operation timeout (5 s).
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from random import Random
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.callbacks import Callbacks
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.consumer import FETCH_VERSION, SimpleConsumer
from assay.system_under_test.client.errors import ClientError
from assay.system_under_test.client.metadata import Metadata
from assay.system_under_test.client.pool import Pool
from assay.system_under_test.client.producer import Producer
from assay.system_under_test.client.traits import select_client_traits
from assay.workloads.broker.log_names import to_failure

READ_SECONDS: Final = 2.0
FETCH_BYTES: Final = "fetch_bytes"
"""Client option: the number of bytes that a poll requests."""
KEEPS: Final = "keeps"
"""Client option: the probability that a client keeps its connections after an unknown outcome."""


class Closable(Protocol):
    """A resource of a session, such as a connection."""

    async def close(self) -> Any: ...


R = TypeVar("R", bound=Closable)


class Leaders:
    """Connections to the leaders of partitions, for requests for which the client library has no method."""

    def __init__(self, name: str, bootstrap: Sequence[str], random: Random) -> None:
        self.pool = Pool(name)
        self.metadata = Metadata(bootstrap, self.pool, random)

    async def close(self) -> None:
        await self.pool.close()


class Session:
    """Connections and state that the verbs of one client share, until the client is closed.

    - ``assignments``: the number of each reader's assignment. Each start of a reader is a new assignment.
    - ``assignment_numbers``: yields these numbers, unique among the readers of one process.
    - ``positions``: the offset that each reader reads next. In a new process there is none, and the operation says
      where to start.
    """

    def __init__(self, endpoint: Endpoint, runtime: Any) -> None:
        self.endpoint, self.runtime = endpoint, runtime
        self.bootstrap = list(endpoint.all)
        self.assignment_numbers = itertools.count(1)
        self.positions: dict[str, int] = {}
        self.assignments: dict[str, int] = {}
        self._resources: dict[Hashable, Closable] = {}

    def get_or_make(self, name: Hashable, make: Callable[[], R]) -> R:
        """Returns the resource of this name. Makes it on first use. The session closes it at its end."""
        if name not in self._resources:
            self._resources[name] = make()
        return cast(R, self._resources[name])

    def forget(self, name: Hashable) -> None:
        """Forgets a resource, which the caller must close."""
        del self._resources[name]

    def consumer(self, timeout: float = READ_SECONDS, version: int = FETCH_VERSION) -> SimpleConsumer:
        """Returns a consumer that returns damaged records instead of an error, so that the checks can report them."""
        return self.get_or_make(
            (SimpleConsumer, timeout, version),
            lambda: SimpleConsumer(
                self.bootstrap, runtime=self.runtime, timeout=timeout, fetch_version=version, check_crcs=False
            ),
        )

    def producer(self, config: ProducerConfig, callbacks: Callbacks | None = None) -> Producer:
        """Returns a new producer, which the session does not close."""
        traits = select_client_traits(self.endpoint.defects)
        return Producer(self.bootstrap, config, runtime=self.runtime, callbacks=callbacks, traits=traits)

    def leaders(self, name: str) -> Leaders:
        return self.get_or_make((Leaders, name), lambda: Leaders(name, self.bootstrap, self.runtime.random))

    def on_unknown_outcome(self) -> None:
        """Called after an unknown outcome. A client that is still used continues as another process of the history."""

    async def close(self) -> None:
        for resource in list(self._resources.values()):
            await resource.close()


class Verb:
    """A kind of operation. Each client has an instance of its own."""

    f: ClassVar[str]
    """The name of the operation in the history."""
    keyed: ClassVar[bool] = True
    """Whether the operation has a key. A client may have two verbs of one name, one of them without a key."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def invoke(self, operation: Operation) -> Completion:
        """Executes the operation. May raise the client library's errors."""
        raise NotImplementedError

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        """Makes the ``effects`` rows of one operation, in order; docs/reference/history.md has the kinds."""
        return ()


Table = dict[tuple[str, bool], type[Verb]]
"""The verbs of a client, by name and by whether their operations have a key."""


def find_verb(table: Table, operation: Operation) -> type[Verb]:
    """Returns the verb of an operation. Raises ``ValueError`` if the client has none."""
    keyed = operation.key is not None
    verb = table.get((operation.f, keyed)) or table.get((operation.f, not keyed))
    if verb is None:
        known = ", ".join(sorted(f for f, has_key in table if has_key is keyed))
        raise ValueError(f"the operations {'with' if keyed else 'without'} a key are {known}, not {operation.f!r}")
    return verb


class BrokerClient:
    """A client of the broker, and a process of the history. A subclass lists its verbs.

    If two verbs have equal names, the later one in the list is used.
    """

    verbs: ClassVar[Sequence[type[Verb]]] = ()
    session_type: ClassVar[type[Session]] = Session
    table: ClassVar[Table] = {}
    survives_info = False
    """Whether the client is still used after an unknown outcome; see ``assay.harness.core.client``."""

    def __init_subclass__(cls) -> None:
        cls.table = {(verb.f, verb.keyed): verb for verb in cls.verbs}

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        """Creates the session. Connections are opened on first use."""
        self.survives_info = KEEPS in endpoint.options and runtime.random.random() < endpoint.options[KEEPS]
        self.session = self.session_type(endpoint, runtime)
        self._instances = {verb: verb(self.session) for verb in self.table.values()}

    async def close(self) -> None:
        await self.session.close()

    async def invoke(self, operation: Operation) -> Completion:
        completion: Completion | None = None
        try:
            completion = await self._instances[find_verb(self.table, operation)].invoke(operation)
        except ClientError as error:
            completion = to_failure(error)
        finally:
            if completion is None or completion.outcome is Outcome.INFO:
                self.session.on_unknown_outcome()
        return completion

    @classmethod
    def effects(cls, completed: Completed) -> Sequence[Effect]:
        return list(find_verb(cls.table, completed.operation).effects(completed))


def ok(result: Any = None) -> Completion:
    return Completion(Outcome.OK, result)


def fail(error: str, result: Any = None) -> Completion:
    return Completion(Outcome.FAIL, result, error)
