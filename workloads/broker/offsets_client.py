"""Client of a group's coordinator: joins and leaves, commits in the current or an older generation, and fetches.

Each client is a process of the history, and a member of the group ``members``. Any client may commit to the group
``tools``, which has no members.

============  ========================  ======================================================================
f             argument                  result
============  ========================  ======================================================================
``enter``     none                      ``{"generation", "owner", "partitions"}``
``leave``     none                      none
``commit``    ``{"number", "offset",    ``{"generation", "owner"}``, null for a client that is not a member
              "client"?}``
``zombie``    as ``commit``             as ``commit``; the request has the previous generation
``stranger``  as ``commit``, "guise"    as ``commit``
``fetch``     none                      ``{"number", "offset"}``, null and -1 if nothing is committed
============  ========================  ======================================================================

``key`` is a group and a partition: ``members/orders-0``. A commit's number is unique and is its metadata, because
offsets may repeat. A member that has to rejoin joins in the same operation before it commits, so that the group need
not wait. If the rejoin fails, the commit certainly did not happen.

- A stranger's ``guise`` is ``no-one`` (no member), ``unknown`` (a member that does not exist), or ``neighbour`` (a
  member of the other group, in the group ``tools``).
- A commit with a ``client``, to the group ``tools``, must always succeed (a *try*). It is made by a long-lived client
  (``regular``) or a new one (``newcomer``).

An administrator's operations and those of ``assay.workloads.broker.expiring_groups`` are available, too.
"""

from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.config import MemberConfig
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.membership import CommitFailed, Generation, JoinFailed, Membership, Position
from assay.workloads.broker import expiring_groups, topic_admin
from assay.workloads.broker.expiring_groups import ExpiringGroupsClient
from assay.workloads.broker.log_client import KEEPS, iterate_tries
from assay.workloads.broker.log_messages import NEWCOMER, get_client
from assay.workloads.broker.log_names import describe_error, split_key, to_outcome
from assay.workloads.broker.topic_admin import ADMIN, TopicAdmin

ENTER: Final = "enter"
LEAVE: Final = "leave"
COMMIT: Final = "commit"
ZOMBIE: Final = "zombie"
FETCH: Final = "fetch"
STRANGER: Final = "stranger"
GUISES: Final = ("no-one", "unknown", "neighbour")
UNKNOWN: Final = "stranger-00000000-0000-0000-0000-000000000000"

MEMBERS: Final = "members"
TOOLS: Final = "tools"
SESSION_SECONDS: Final = 1.5
REBALANCE_SECONDS: Final = 1.5
CALL_SECONDS: Final = 2.0
"""Two calls, a join and a commit, fit into an operation's time (5 s). A call is longer than a session and a rebalance,
so that a join is answered while the coordinator waits for lost members.
"""
RETENTION: Final = "retention"
"""Client option: the retention in seconds of the offsets of group ``members``; by default the brokers' setting."""
TOOLS_RETENTION: Final = 24 * 3600.0
"""Seconds: brokers with a short retention would otherwise expire the offsets of a group without members."""


class OffsetsClient:
    """Client of offsets; operations as above."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        bootstrap = list(endpoint.all)
        self.keeps = KEEPS in endpoint.options and runtime.random.random() < endpoint.options[KEEPS]
        self._present: Generation | None = None
        self._former: Generation | None = None
        self._groups = {
            group: Membership(
                bootstrap,
                group,
                topics,
                MemberConfig(
                    session_timeout=SESSION_SECONDS,
                    rebalance_timeout=REBALANCE_SECONDS,
                    timeout=CALL_SECONDS,
                    retention=retention,
                ),
                runtime=runtime,
            )
            for group, topics, retention in (
                (MEMBERS, ("orders",), endpoint.options.get(RETENTION)),
                (TOOLS, (), TOOLS_RETENTION),
            )
        }
        config = MemberConfig(timeout=CALL_SECONDS, retention=TOOLS_RETENTION)

        def outsider(group: str) -> Membership:
            return Membership(bootstrap, group, (), config, runtime=runtime)

        self._outsider = outsider
        self._outsiders = {group: outsider(group) for group in self._groups}
        self._regular = outsider(TOOLS)
        self._brief = ExpiringGroupsClient(endpoint, runtime)
        self._admin = TopicAdmin(bootstrap, runtime)

    async def close(self) -> None:
        for membership in (*self._groups.values(), *self._outsiders.values(), self._regular):
            await membership.close()
        await self._brief.close()
        await self._admin.close()

    async def invoke(self, operation: Operation) -> Completion:
        if operation.f in ADMIN:
            return await self._admin.invoke(operation)
        member = self._groups[MEMBERS]
        self._said: int | None = None
        self._entered: dict[str, Any] | None = None
        try:
            match operation.f:
                case "enter":
                    return Completion(Outcome.OK, await self._enter(member))
                case "leave":
                    await member.leave()
                    return Completion(Outcome.OK)
                case "commit" if (client := get_client(operation.argument)) is not None:
                    return await self._try(operation, client)
                case "commit" | "zombie":
                    return await self._commit(operation)
                case "stranger":
                    return await self._intrude(operation)
                case "fetch":
                    return await self._fetch(operation)
                case f if f in expiring_groups.OPERATIONS:
                    return await self._brief.invoke(operation)
        except (JoinFailed, ReadFailed) as error:
            return Completion(Outcome.FAIL, error=describe_error(error))
        except CommitFailed as error:
            return Completion(
                to_outcome(error.outcome),
                {"generation": self._said, "entered": self._entered},
                error=describe_error(error),
            )
        raise ValueError(
            f"group operations are {ENTER}, {LEAVE}, {COMMIT}, {ZOMBIE}, {STRANGER} and {FETCH}, not {operation.f!r}"
        )

    async def _enter(self, member: Membership) -> dict[str, Any]:
        entered = await member.enter()
        self._note(entered)
        return {
            "generation": entered.number,
            "owner": entered.member_id,
            "partitions": [f"{topic}-{index}" for topic, index in entered.partitions],
        }

    def _note(self, generation: Generation) -> None:
        """Remembers the previous generation for ``zombie`` commits."""
        if self._present is not None and self._present != generation:
            self._former = self._present
        self._present = generation

    async def _commit(self, operation: Operation) -> Completion:
        assert operation.key is not None
        group, partition = _split_register(operation.key)
        membership = self._groups[group]
        generation: Generation | None = None
        if operation.f == ZOMBIE:
            if self._former is None:
                return Completion(Outcome.FAIL, error="no-former-generation")
            generation = self._former
        elif group == MEMBERS:
            if membership.generation is None:
                self._entered = await self._enter(membership)
            generation = membership.generation
            if generation is None:
                return Completion(Outcome.FAIL, {"entered": self._entered}, error="not-a-member")
            self._note(generation)
        self._said = None if generation is None else generation.number
        argument = operation.argument
        await membership.commit({partition: Position(argument["offset"], str(argument["number"]))}, generation)
        return Completion(Outcome.OK, {"generation": self._said, "entered": self._entered})

    async def _try(self, operation: Operation, client: str) -> Completion:
        assert operation.key is not None
        argument = operation.argument
        position = Position(argument["offset"], str(argument["number"]))
        committer = self._outsider(TOOLS) if client == NEWCOMER else self._regular
        try:
            await committer.commit({_split_register(operation.key)[1]: position})
        finally:
            if client == NEWCOMER:
                await committer.close()
        return Completion(Outcome.OK, {"generation": None})

    async def _intrude(self, operation: Operation) -> Completion:
        assert operation.key is not None
        argument = operation.argument
        group, partition = _split_register(operation.key)
        said: Generation | None = None
        if argument["guise"] == "unknown":
            said = Generation(1 if self._present is None else self._present.number, UNKNOWN, ())
        elif argument["guise"] == "neighbour":
            said = self._present or Generation(1, UNKNOWN, ())
            group = TOOLS
        self._said = None if said is None else said.number
        position = Position(argument["offset"], str(argument["number"]))
        await self._outsiders[group].commit({partition: position}, said)
        return Completion(Outcome.OK, {"generation": self._said})

    async def _fetch(self, operation: Operation) -> Completion:
        assert operation.key is not None
        group, partition = _split_register(operation.key)
        found = (await self._groups[group].committed([partition]))[partition]
        number = int(found.metadata) if found.metadata.lstrip("-").isdigit() else None
        return Completion(Outcome.OK, {"number": number, "offset": found.offset})

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        """Returns the rows of an operation. A commit that had to join first has the rows of the join, too."""
        operation, result = completed.operation, completed.completion.result or {}
        if operation.f in ADMIN:
            return topic_admin.effects(completed)
        if operation.f in expiring_groups.OPERATIONS:
            return expiring_groups.effects(completed)
        rows: list[Effect] = []
        entered = result if operation.f == ENTER else result.get("entered")
        if entered and completed.ret is not None:  # the member had joined, even if the commit failed
            rows += _list_acquired(entered)
        if operation.f in (COMMIT, ZOMBIE, STRANGER):
            assert operation.key is not None
            rows.append(
                Effect(
                    "commit",
                    _find_register(operation),
                    position=operation.argument["offset"],
                    value=operation.argument["number"],
                    generation=result.get("generation"),
                    group=_split_register(_find_register(operation))[0],
                )
            )
            rows += iterate_tries(completed)
        if operation.f == FETCH and result:
            assert operation.key is not None
            rows.append(
                Effect(
                    "fetched",
                    operation.key,
                    position=result["offset"],
                    value=result["number"],
                    group=_split_register(operation.key)[0],
                )
            )
        return rows


def _list_acquired(entered: dict[str, Any]) -> list[Effect]:
    return [
        Effect(
            "acquire", key, generation=entered["generation"], owner=entered["owner"], group=MEMBERS, outcome=Outcome.OK
        )
        for key in entered["partitions"] or [MEMBERS]
    ]


def _find_register(operation: Operation) -> str:
    """Returns the register of a commit; a ``neighbour`` commits to ``tools``."""
    key = operation.key or ""
    return f"{TOOLS}/{key.partition('/')[2]}" if (operation.argument or {}).get("guise") == "neighbour" else key


def _split_register(key: str) -> tuple[str, tuple[str, int]]:
    """Splits ``members/orders-3`` into the group, and the topic with its partition."""
    group, _, partition = key.partition("/")
    return group, split_key(partition)
