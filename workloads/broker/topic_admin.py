"""An administrator's operations on topics and partitions: changes, and reads that show their effects.

The key is a topic, or for ``move`` and ``elect`` a partition. Each incarnation of a topic has its own key (``orders``,
``orders#2``, ``orders#3``), while the brokers know only one name. A rejected change certainly did not happen. A change
of unknown outcome may take effect at any later time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.operation import Completed, Completion, Effect, Operation
from assay.system_under_test.client.admin import Admin, NewTopic, TopicOutcome
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.client.metadata import BrokerNode
from assay.system_under_test.protocol.errors import ErrorCode
from assay.workloads.broker.log_names import format_error, format_node, split_key, strip_incarnation, to_outcome
from assay.workloads.broker.log_operations import Read, get_key
from assay.workloads.broker.verbs import Verb, fail, ok

ADMIN_SECONDS: Final = 4.0


class AdminVerb(Verb):
    """An operation of an administrator."""

    @property
    def admin(self) -> Admin:
        session = self.session
        return session.get_or_make(
            Admin, lambda: Admin(session.bootstrap, runtime=session.runtime, timeout=ADMIN_SECONDS)
        )


class Change(AdminVerb):
    """A change. It has no result. A subclass defines the request."""

    async def request(self, key: str, argument: Any) -> TopicOutcome:
        raise NotImplementedError

    async def invoke(self, operation: Operation) -> Completion:
        assert operation.key is not None, f"{operation.f} without a topic"
        return to_completion(await self.request(operation.key, operation.argument))


class Create(Change):
    """Creates a topic. Argument: ``{"partitions", "replication", "configs"?}``."""

    f = "create"

    async def request(self, key: str, argument: Any) -> TopicOutcome:
        topic, configs = strip_incarnation(key), argument.get("configs", {})
        wanted = NewTopic(topic, argument["partitions"], argument["replication"], configs=configs)
        return (await self.admin.create_topics([wanted]))[topic]

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        yield Effect("topic-create", get_key(completed), value=completed.operation.argument["partitions"])


class Delete(Change):
    """Deletes a topic."""

    f = "delete"

    async def request(self, key: str, argument: Any) -> TopicOutcome:
        topic = strip_incarnation(key)
        return (await self.admin.delete_topics([topic]))[topic]

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        yield Effect("topic-delete", get_key(completed))


class AddPartitions(Change):
    """Adds partitions to a topic. Argument: ``{"partitions"}``, the new total."""

    f = "grow"

    async def request(self, key: str, argument: Any) -> TopicOutcome:
        return await self.admin.create_partitions(strip_incarnation(key), argument["partitions"])

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        yield Effect("partitions-add", get_key(completed), value=completed.operation.argument["partitions"])


class Alter(Change):
    """Changes a setting of a topic. Argument: ``{"name", "value"}``; null resets the setting to its default."""

    f = "alter"

    async def request(self, key: str, argument: Any) -> TopicOutcome:
        return await self.admin.alter_config(strip_incarnation(key), {argument["name"]: argument["value"]})

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        name, value = completed.operation.argument["name"], completed.operation.argument["value"]
        yield Effect("setting", get_key(completed), name=name, value=_parse_number(value))


class Move(Change):
    """Moves a partition to other brokers. Argument: ``{"replicas"}``, the brokers' numbers."""

    f = "move"

    async def request(self, key: str, argument: Any) -> TopicOutcome:
        partition = split_key(key)
        return (await self.admin.reassign({partition: argument["replicas"]}))[partition]

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        replicas = completed.operation.argument["replicas"]
        yield Effect("move", get_key(completed), replicas=_join_replicas(replicas))


class Elect(Change):
    """Elects the preferred leader of a partition."""

    f = "elect"

    async def request(self, key: str, argument: Any) -> TopicOutcome:
        partition = split_key(key)
        return (await self.admin.elect_preferred([partition]))[partition]


class Describe(Read, AdminVerb):
    """Describes a topic.

    Result: ``{"controller", "partitions": [{"leader", "replicas"}, ...]}``. Without a topic ``partitions`` is null.
    """

    f = "describe"

    async def invoke(self, operation: Operation) -> Completion:
        topic = strip_incarnation(str(operation.key))
        view = await self.admin.describe([topic])
        found = view.topics.get(topic)
        if found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            partitions = None
        elif found.error is not ErrorCode.NONE:
            return fail(format_error(found.error))
        else:
            partitions = [
                {"leader": _format_node(one.leader), "replicas": list(one.replicas)}
                for _, one in sorted(found.partitions.items())
            ]
        return ok({"controller": _format_node(view.controller), "partitions": partitions})

    @classmethod
    def iterate_effects(cls, key: str, result: Mapping[str, Any], operation: Operation) -> Iterator[Effect]:
        partitions = result["partitions"]
        yield Effect("topic-seen", key, value=None if partitions is None else len(partitions))
        for index, one in enumerate(partitions or ()):
            yield Effect("replicas-seen", f"{key}-{index}", replicas=_join_replicas(one["replicas"]))


class ListSettings(Read, AdminVerb):
    """Lists the topic's own settings. Result: ``{"settings"}``, null if there is no topic."""

    f = "settings"

    async def invoke(self, operation: Operation) -> Completion:
        try:
            return ok({"settings": await self.admin.describe_config(strip_incarnation(str(operation.key)))})
        except ReadFailed as error:
            if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return ok({"settings": None})
            raise

    @classmethod
    def iterate_effects(cls, key: str, result: Mapping[str, Any], operation: Operation) -> Iterator[Effect]:
        if result["settings"] is None:
            yield Effect("topic-seen", key)
            return
        yield Effect("setting-seen", key)  # settings without a row have their defaults
        for name, value in sorted(result["settings"].items()):
            yield Effect("setting-seen", key, name=name, value=_parse_number(value))


ADMIN: Final = (Create, Delete, AddPartitions, Alter, Move, Elect, Describe, ListSettings)


def to_completion(known: TopicOutcome) -> Completion:
    """Returns ``fail`` for a rejection. A change of unknown outcome is ``info``, because it may take effect later."""
    if known.outcome is Certainty.DONE:
        return ok()
    name = "no-answer" if known.error is None else format_error(known.error)
    error = name if known.message is None else f"{name}: {known.message}"
    return Completion(to_outcome(known.outcome), error=error)


def _format_node(node: BrokerNode | None) -> str | None:
    return None if node is None else format_node(node.id)


def _join_replicas(replicas: Sequence[int]) -> str:
    return ",".join(str(one) for one in replicas)


def _parse_number(value: str | None) -> int | None:
    """Returns null for a setting that is not a number, or that was reset to its default."""
    return int(value) if value is not None and value.removeprefix("-").isdigit() else None
