"""Calls of a system's methods in the worker process, which is on the network of the system's nodes.

Some methods of a system connect to its nodes: ``ready``, ``set_up``, ``find`` and others (``NETWORK_METHODS``). The
harness sends the system, the method and its arguments to the worker process. There, nodes are views: they have the
nodes' names, roles and addresses, and each of their methods is called back in the harness, which controls the nodes.

The harness sends pickled objects, and the worker answers with plain data. The worker shares a network with the system
under test, and must not be able to make the harness execute anything.
"""

import asyncio
import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from assay.cluster.node import Cluster, Node, NodeError
from assay.cluster.system import DeploymentError
from assay.harness.core.interpreter_status import describe_error
from assay.harness.core.printable import to_encodable
from assay.harness.remote.messages import (
    ANSWERS,
    REQUESTS,
    CalledAnswer,
    CallRequest,
    FailedCallAnswer,
    NodeCallAnswer,
    NodeResult,
    RaisedAnswer,
    encode_message,
    make_raised_answer,
    receive_message,
)
from assay.harness.remote.multiplexer import ByteWriter

NETWORK_METHODS: Final = (
    "ready", "set_up", "find", "alone_with", "replicas", "replicas_of", "move", "standing", "look",
)  # fmt: skip
"""Methods of a system that may connect to its nodes."""
OBJECT_METHODS: Final = frozenset(("standing",))
"""Methods that return an object. The harness gets an object with equal attributes."""
NODE_KEY: Final = "node of this cluster"
"""The only key of the mapping that stands for a node in a result."""

KNOWN_ERRORS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (
        NodeError, DeploymentError, TimeoutError, OSError, ConnectionError, ConnectionRefusedError,
        ConnectionResetError, BrokenPipeError, AttributeError, ImportError, ModuleNotFoundError, NameError, ValueError,
        TypeError, KeyError, IndexError, RuntimeError, AssertionError, EOFError,
    )
}  # fmt: skip
"""Errors that keep their class on their way to the harness, because it treats them differently."""


class RemoteCallError(Exception):
    """An error of a system's method in the worker process, of a class that the harness does not know."""


class NodeView:
    """A node in the worker process. Methods of the node are called back in the harness.

    It is no dataclass, because MessagePack would encode a dataclass by its fields.
    """

    def __init__(self, node: Node) -> None:
        self.name = node.name
        self.role = node.role
        self.index = node.index
        self.address = node.address
        self._abilities = frozenset(name for name in dir(node) if not name.startswith("_") and name != "dial")
        """Names of the node's attributes. A system may ask whether a node has an optional method.

        ``dial`` is left out, because the worker process reaches the node's address itself.
        """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._abilities:
            raise AttributeError(f"nodes have no attribute {name}")
        calls = _node_calls.get()

        async def call(*arguments: Any, **named: Any) -> Any:
            return await calls.call(self.name, name, arguments, named)

        return call

    def __repr__(self) -> str:
        return f"<node {self.name}>"


@dataclass(frozen=True)
class ClusterView:
    """A cluster in the worker process."""

    kind: str
    nodes: Sequence[NodeView]
    spares: Sequence[NodeView]
    description: Mapping[str, str]


class RuntimeMark:
    """Stands for the runtime of clients in the arguments of a call."""


@dataclass(frozen=True)
class SystemCall:
    """A method of a system, with its arguments. Nodes, the cluster and the runtime are replaced."""

    system: Any
    method: str
    arguments: Sequence[Any]
    named: Mapping[str, Any] = field(default_factory=dict)


# -- in the harness ---------------------------------------------------------------------------------------------------


async def call_system(
    reader: asyncio.StreamReader, writer: ByteWriter, call: SystemCall, cluster: Cluster, runtime: Any
) -> Any:
    """Calls a method of a system in the worker process, over a connection of its own.

    ``call`` has the harness's own nodes, cluster and ``runtime`` among its arguments. Raises the errors of the method.
    """
    nodes = {node.name: node for node in (*cluster.nodes, *cluster.spares)}
    views = {name: NodeView(node) for name, node in nodes.items()}
    view_by_id = {id(node): views[name] for name, node in nodes.items()}

    def replace(value: Any) -> Any:
        if value is cluster:
            return ClusterView(
                cluster.kind,
                [views[node.name] for node in cluster.nodes],
                [views[node.name] for node in cluster.spares],
                dict(cluster.description),
            )
        if value is runtime:
            return RuntimeMark()
        if (view := view_by_id.get(id(value))) is not None:
            return view
        if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
            return [replace(one) for one in value]
        return value

    named = {name: replace(one) for name, one in call.named.items()}
    sent = SystemCall(call.system, call.method, replace(tuple(call.arguments)), named)
    try:
        writer.write(encode_message(CallRequest(pickle.dumps(sent))))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise DeploymentError(
            f"{call.system.name} cannot be sent to the network of its nodes: {error}; define its class, and what its "
            "attributes hold, at the top of a module"
        ) from error
    running: set[asyncio.Task[None]] = set()
    try:
        while True:
            await writer.drain()
            answer = await receive_message(reader, ANSWERS)
            if not isinstance(answer, NodeCallAnswer):
                return _read_answer(answer, call, nodes)
            task = asyncio.get_running_loop().create_task(_call_node(nodes, answer, writer))
            running.add(task)
            task.add_done_callback(running.discard)
    finally:
        for task in running:
            task.cancel()
        writer.close()


def _read_answer(answer: Any, call: SystemCall, nodes: Mapping[str, Node]) -> Any:
    match answer:
        case CalledAnswer(result):
            try:
                found = _restore_nodes(msgspec.msgpack.decode(result), nodes)
                return SimpleNamespace(**found) if call.method in OBJECT_METHODS and found is not None else found
            except (msgspec.MsgspecError, RecursionError, TypeError, KeyError) as error:
                whose = f"{call.method}() of {call.system.name}"
                raise ConnectionError(f"the worker process answered {whose} with no result: {error!r}") from error
        case FailedCallAnswer(kind, text, errno):
            known = KNOWN_ERRORS.get(kind, RemoteCallError)
            raise OSError(errno, text) if issubclass(known, OSError) and errno is not None else known(text)
        case RaisedAnswer(error, trace):
            raised = RemoteCallError(error)
            raised.add_note(f"on the network of the nodes:\n{trace}")
            raise raised
    raise ConnectionError(f"the worker process ended during {call.method}() of {call.system.name}")


def _restore_nodes(value: Any, nodes: Mapping[str, Node]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {NODE_KEY}:
            return nodes[value[NODE_KEY]]
        return {key: _restore_nodes(one, nodes) for key, one in value.items()}
    return [_restore_nodes(one, nodes) for one in value] if isinstance(value, list) else value


async def _call_node(nodes: Mapping[str, Node], request: NodeCallAnswer, writer: ByteWriter) -> None:
    """Calls a method of a node for the worker, and sends the result."""
    try:
        arguments, named = msgspec.msgpack.decode(request.arguments)
        if request.method.startswith("_"):
            raise AttributeError(f"nodes have no method {request.method}")
        method = getattr(nodes[request.node], request.method)
        result = method(*_restore_nodes(arguments, nodes), **_restore_nodes(named, nodes))
        answer = NodeResult(request.number, pickle.dumps(await result if asyncio.iscoroutine(result) else result))
    except Exception as error:  # noqa: BLE001 - the caller gets it, and may expect it
        try:
            raised = pickle.dumps(error)
        except Exception:  # noqa: BLE001 - any error of the error's own class
            raised = pickle.dumps(NodeError(describe_error(error)))
        answer = NodeResult(request.number, raised, raised=True)
    with suppress(OSError):
        writer.write(encode_message(answer))
        await writer.drain()


# -- in the worker process --------------------------------------------------------------------------------------------


class NodeCalls:
    """The calls of nodes' methods that a system's method has begun."""

    def __init__(self, writer: ByteWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def call(self, node: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Calls a node's method in the harness."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        encoded = msgspec.msgpack.encode((arguments, named), enc_hook=_to_plain)
        self._writer.write(encode_message(NodeCallAnswer(number, node, method, encoded)))
        await self._writer.drain()
        try:
            return await future
        finally:
            del self._waiting[number]

    def receive(self, result: NodeResult) -> None:
        """Passes a result on to its caller."""
        future = self._waiting.get(result.number)
        if future is None or future.done():
            return
        value = pickle.loads(result.result)
        if result.raised:
            future.set_exception(value)
        else:
            future.set_result(value)


_node_calls: ContextVar[NodeCalls] = ContextVar("node calls")


async def serve_call(
    request: CallRequest, reader: asyncio.StreamReader, writer: ByteWriter, runtime: Any
) -> bytes | None:
    """Calls the method and returns the encoded answer, or None if the harness has ended the connection.

    ``runtime`` replaces the harness's runtime of clients.
    """
    calls = NodeCalls(writer)
    _node_calls.set(calls)
    task = asyncio.get_running_loop().create_task(_execute(request, runtime))
    try:
        while True:
            reading = receive_message(reader, REQUESTS)
            receiving = asyncio.get_running_loop().create_task(reading)
            await asyncio.wait([task, receiving], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                receiving.cancel()
                return task.result()
            message = receiving.result()
            if not isinstance(message, NodeResult):
                return None
            calls.receive(message)
    finally:
        task.cancel()


async def _execute(request: CallRequest, runtime: Any) -> bytes:
    try:
        call: SystemCall = pickle.loads(request.call)
        arguments = [runtime if isinstance(one, RuntimeMark) else one for one in call.arguments]
        result = await getattr(call.system, call.method)(*arguments, **call.named)
        if result is not None and not isinstance(result, Mapping | str | bytes) and isinstance(result, Iterable):
            result = list(result)
        return encode_message(CalledAnswer(msgspec.msgpack.encode(result, enc_hook=_to_plain)))
    except Exception as error:  # noqa: BLE001 - user code; the harness gets the error
        kind = find_known_kind(error)
        if kind is not None:
            return encode_message(make_failed_answer(kind, error))
        return encode_message(make_raised_answer(error))


def find_known_kind(error: Exception) -> str | None:
    """Returns the name of the error's class, or of its nearest base, that the harness knows; None if there is none."""
    return next((one.__name__ for one in type(error).__mro__ if one.__name__ in KNOWN_ERRORS), None)


def make_failed_answer(kind: str, error: Exception) -> FailedCallAnswer:
    return FailedCallAnswer(kind, to_encodable(_describe(error)), getattr(error, "errno", None))


def _describe(error: Exception) -> str:
    """Returns an error's message. A missing package gets its remedy."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, ModuleNotFoundError):
        return (
            f"{error} in the clients' container: name its package in `python` of the system or of the client, such as "
            f'`python = ("{error.name}",)`'
        )
    return str(error)


def _to_plain(value: Any) -> Any:
    """Encodes the values that MessagePack does not know."""
    if isinstance(value, NodeView):
        return {NODE_KEY: value.name}
    if isinstance(value, Set | Iterable):
        return list(value)
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    raise TypeError(f"{value!r} is no plain data, so it cannot be sent to the harness")
