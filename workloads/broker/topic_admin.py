"""An administrator's operations on topics and partitions, and what later looks find.

============  ======================================================  ==================================================
f             argument                                                result
============  ======================================================  ==================================================
``create``    ``{"partitions", "replication", "configs"?}``           none
``delete``    none                                                    none
``grow``      ``{"partitions": in all}``                              none
``alter``     ``{"name", "value"}``, null: back to the default        none
``move``      ``{"replicas"}``                                        none; ``key`` is ``topic-partition``
``elect``     none                                                    none; ``key`` is ``topic-partition``
``describe``  none                                                    ``{"controller", "partitions": [{"leader",
                                                                      "replicas"}, ...], null without the topic}``
``settings``  none                                                    ``{"settings"}``: the topic's own settings;
                                                                      null without the topic
============  ======================================================  ==================================================

``key`` is a topic unless stated otherwise. A topic that is deleted and recreated has another key each time (``orders``,
``orders#2``, ``orders#3``), while the brokers know it by one name. A rejected change certainly did not happen; a change
of unknown outcome may take effect at any later time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.admin import Admin, NewTopic, TopicOutcome
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.client.metadata import Node
from assay.system_under_test.protocol.errors import ErrorCode
from assay.workloads.broker.log_names import (
    describe_error,
    format_error,
    format_node,
    split_key,
    strip_life,
    to_outcome,
)

CREATE: Final = "create"
DELETE: Final = "delete"
GROW: Final = "grow"
ALTER: Final = "alter"
MOVE: Final = "move"
ELECT: Final = "elect"
DESCRIBE: Final = "describe"
SETTINGS: Final = "settings"
ADMIN: Final = (CREATE, DELETE, GROW, ALTER, MOVE, ELECT, DESCRIBE, SETTINGS)

ADMIN_SECONDS: Final = 4.0


class TopicAdmin:
    """Client for the operations above."""

    def __init__(self, bootstrap: Sequence[str], runtime: Any) -> None:
        self._admin = Admin(bootstrap, runtime=runtime, timeout=ADMIN_SECONDS)

    async def close(self) -> None:
        await self._admin.close()

    async def invoke(self, operation: Operation) -> Completion:
        assert operation.key is not None, f"{operation.f} without a topic"
        topic = strip_life(operation.key)
        argument: Mapping[str, Any] = operation.argument or {}
        try:
            match operation.f:
                case "create":
                    wanted = NewTopic(
                        topic, argument["partitions"], argument["replication"], configs=argument.get("configs", {})
                    )
                    return to_completion((await self._admin.create_topics([wanted]))[topic])
                case "delete":
                    return to_completion((await self._admin.delete_topics([topic]))[topic])
                case "grow":
                    return to_completion(await self._admin.create_partitions(topic, argument["partitions"]))
                case "alter":
                    return to_completion(await self._admin.alter_config(topic, {argument["name"]: argument["value"]}))
                case "move":
                    partition = split_key(operation.key)
                    return to_completion((await self._admin.reassign({partition: argument["replicas"]}))[partition])
                case "elect":
                    partition = split_key(operation.key)
                    return to_completion((await self._admin.elect_preferred([partition]))[partition])
                case "describe":
                    return await self._describe(topic)
                case "settings":
                    return await self._settings(topic)
        except ReadFailed as error:
            return Completion(Outcome.FAIL, error=describe_error(error))
        raise ValueError(f"the operations of an administrator are {', '.join(ADMIN)}, not {operation.f!r}")

    async def _describe(self, topic: str) -> Completion:
        view = await self._admin.describe([topic])
        found = view.topics.get(topic)
        missing = found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is not None and not missing and found.error is not ErrorCode.NONE:
            return Completion(Outcome.FAIL, error=format_error(found.error))
        partitions = None
        if found is not None and not missing:
            partitions = [
                {"leader": _format_node(one.leader), "replicas": list(one.replicas)}
                for _, one in sorted(found.partitions.items())
            ]
        return Completion(Outcome.OK, {"controller": _format_node(view.controller), "partitions": partitions})

    async def _settings(self, topic: str) -> Completion:
        try:
            return Completion(Outcome.OK, {"settings": await self._admin.describe_config(topic)})
        except ReadFailed as error:
            if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return Completion(Outcome.OK, {"settings": None})
            raise


def effects(completed: Completed) -> Sequence[Effect]:
    """Returns the ``effects`` rows of an administrator's operation; docs/reference/history.md has the kinds."""
    key, argument = completed.operation.key, completed.operation.argument
    assert key is not None, f"operation {completed.index} on no topic"
    match completed.operation.f:
        case "create":
            return [Effect("topic-create", key, value=argument["partitions"])]
        case "delete":
            return [Effect("topic-delete", key)]
        case "grow":
            return [Effect("partitions-add", key, value=argument["partitions"])]
        case "alter":
            return [Effect("setting", key, name=argument["name"], value=_parse_number(argument["value"]))]
        case "move":
            return [Effect("move", key, replicas=_join_replicas(argument["replicas"]))]
        case "describe":
            return list(_iterate_described(key, completed.completion.result))
        case "settings":
            return list(_iterate_settings(key, completed.completion.result))
        case _:
            return ()


def _iterate_described(topic: str, result: Mapping[str, Any] | None) -> Iterator[Effect]:
    if result is None:
        return
    partitions = result["partitions"]
    yield Effect("topic-seen", topic, value=None if partitions is None else len(partitions))
    for index, one in enumerate(partitions or ()):
        yield Effect("replicas-seen", f"{topic}-{index}", replicas=_join_replicas(one["replicas"]))


def _iterate_settings(topic: str, result: Mapping[str, Any] | None) -> Iterator[Effect]:
    if result is None:
        return
    if result["settings"] is None:
        yield Effect("topic-seen", topic)
        return
    yield Effect("setting-seen", topic)  # the rows that follow are complete: any other setting has its default
    for name, value in sorted(result["settings"].items()):
        yield Effect("setting-seen", topic, name=name, value=_parse_number(value))


def to_completion(known: TopicOutcome) -> Completion:
    """A rejection is ``fail``. A change of unknown outcome is ``info``, because it may take effect later."""
    if known.outcome is Certainty.DONE:
        return Completion(Outcome.OK)
    named = "no-answer" if known.error is None else format_error(known.error)
    error = named if known.message is None else f"{named}: {known.message}"
    return Completion(to_outcome(known.outcome), error=error)


def _format_node(node: Node | None) -> str | None:
    return None if node is None else format_node(node.id)


def _join_replicas(replicas: Sequence[int]) -> str:
    return ",".join(str(one) for one in replicas)


def _parse_number(value: str | None) -> int | None:
    """Returns null for a setting that is not a number, or that was reset to its default."""
    return int(value) if value is not None and value.removeprefix("-").isdigit() else None
