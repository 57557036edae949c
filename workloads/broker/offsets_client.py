"""Client of a group's coordinator: joins and leaves, commits in the current or an older generation, and fetches.

Each client is a process of the history, and a member of the group ``members``. Any client may commit to the group
``tools``, which has no members. An operation's key has a group and a partition: ``members/orders-0``. The client also
has an administrator's operations, and those of ``assay.workloads.broker.expiring_groups``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.membership import CommitFailed, Generation, Membership, Position
from assay.workloads.broker.expiring_groups import EXPIRY_VERBS, OffsetsSession
from assay.workloads.broker.log_messages import NEWCOMER, get_client, iterate_client_tries
from assay.workloads.broker.log_names import split_key, to_failure
from assay.workloads.broker.topic_admin import ADMIN
from assay.workloads.broker.verbs import BrokerClient, Verb, fail, ok

# How the commit of a client that is not a member names a member (``CommitAsNonMember``).
GUISES: Final = ("no-one", "unknown", "neighbour")
UNKNOWN_MEMBER: Final = "stranger-00000000-0000-0000-0000-000000000000"

MEMBERS: Final = "members"
MEMBERLESS: Final = "tools"
"""A group without members, to which only clients outside of it commit, as tools do."""
RETENTION: Final = "retention"
"""Client option: the retention in seconds of the offsets of group ``members``. The default is the brokers' setting."""
MEMBERLESS_RETENTION: Final = 24 * 3600.0
"""Retention in seconds of the offsets of group ``tools``.

With the brokers' setting, the offsets of this group without members might expire.
"""


class OffsetsVerb(Verb):
    """An operation of a client, which has a member in the group ``members``.

    The session remembers the member's generation (``present``) and the one before it (``former``).
    """

    session: OffsetsSession

    def membership(self, group: str) -> Membership:
        if group == MEMBERLESS:
            return self.session.membership("own", MEMBERLESS, retention=MEMBERLESS_RETENTION)
        return self.session.membership("own", group, ("orders",), self.session.endpoint.options.get(RETENTION))

    async def enter(self) -> dict[str, Any]:
        entered = await self.membership(MEMBERS).enter()
        self.remember(entered)
        return {
            "generation": entered.number,
            "owner": entered.member_id,
            "partitions": [f"{topic}-{index}" for topic, index in entered.partitions],
        }

    def remember(self, generation: Generation) -> None:
        """Remembers the member's generation, and the previous one for ``zombie`` commits."""
        session = self.session
        if session.present is not None and session.present != generation:
            session.former = session.present
        session.present = generation


class JoinGroup(OffsetsVerb):
    """Joins the group. Result: ``{"generation", "owner", "partitions"}``."""

    f = "enter"

    async def invoke(self, operation: Operation) -> Completion:
        return ok(await self.enter())

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        return _iterate_acquired(completed, completed.completion.result)


class Leave(OffsetsVerb):
    """Leaves the group."""

    f = "leave"

    async def invoke(self, operation: Operation) -> Completion:
        await self.membership(MEMBERS).leave()
        return ok()


class Commit(OffsetsVerb):
    """Commits an offset. The metadata is a unique number, because offsets may repeat.

    Argument: ``{"number", "offset", "client"?}``. Result: ``{"generation", "entered"?}``. The generation is null for a
    client that is not a member. A member that must rejoin does so in the same operation before it commits, so that the
    group need not wait for it. If the join fails, the commit certainly did not happen.

    A commit to the group ``tools`` with a ``client`` is a *try*, which must succeed. A long-lived client (``regular``)
    or a new one (``newcomer``) makes it.
    """

    f = "commit"

    async def invoke(self, operation: Operation) -> Completion:
        client = get_client(operation.argument)
        if client is not None:
            return await self._try(operation, client)
        group, _ = split_register(operation)
        membership, entered, generation = self.membership(group), None, None
        if group == MEMBERS:
            if membership.generation is None:
                entered = await self.enter()
            generation = membership.generation
            if generation is None:
                return fail("not-a-member", {"entered": entered})
            self.remember(generation)
        return await self.commit(membership, operation, generation, {"entered": entered})

    async def _try(self, operation: Operation, client: str) -> Completion:
        if client != NEWCOMER:
            regular = self.session.membership("regular", MEMBERLESS, retention=MEMBERLESS_RETENTION)
            return await self.commit(regular, operation, None)
        newcomer = self.session.make_membership(MEMBERLESS, (), MEMBERLESS_RETENTION)
        try:
            return await self.commit(newcomer, operation, None)
        finally:
            await newcomer.close()

    @staticmethod
    async def commit(
        membership: Membership,
        operation: Operation,
        generation: Generation | None,
        more: dict[str, Any] | None = None,
    ) -> Completion:
        """Commits in this generation, or with None as a client that is not a member.

        ``more``: additional fields of the result.
        """
        argument = operation.argument
        result: dict[str, Any] = {"generation": None if generation is None else generation.number}
        position = Position(argument["offset"], str(argument["number"]))
        try:
            await membership.commit({split_register(operation)[1]: position}, generation)
        except CommitFailed as error:
            return to_failure(error, result | (more or {"entered": None}))
        return ok(result | (more or {}))

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        """Returns the rows of a commit, and those of the join if the client had to join first."""
        operation, result = completed.operation, completed.completion.result or {}
        register = cls.find_register(operation)
        row = Effect(
            "commit",
            register,
            position=operation.argument["offset"],
            value=operation.argument["number"],
            generation=result.get("generation"),
            group=register.partition("/")[0],
        )
        return [*_iterate_acquired(completed, result.get("entered")), row, *iterate_client_tries(operation)]

    @staticmethod
    def find_register(operation: Operation) -> str:
        """Returns the register that the commit writes."""
        return str(operation.key)


class CommitInOldGeneration(Commit):
    """Commits in the previous generation. Argument and result are those of a ``commit``."""

    f = "zombie"

    async def invoke(self, operation: Operation) -> Completion:
        if self.session.former is None:
            return fail("no-former-generation")
        membership = self.membership(split_register(operation)[0])
        return await self.commit(membership, operation, self.session.former, {"entered": None})


class CommitAsNonMember(Commit):
    """Commits as a client that is not a member. Argument: that of a ``commit``, and ``guise``. Result: ``generation``.

    The ``guise`` says which member the commit names: none (``no-one``), a member that does not exist (``unknown``), or
    a member of the group ``members`` (``neighbour``). In the last case the commit is to the group ``tools``.
    """

    f = "stranger"

    async def invoke(self, operation: Operation) -> Completion:
        present, guise = self.session.present, operation.argument["guise"]
        generation: Generation | None = None
        if guise == "unknown":
            generation = Generation(1 if present is None else present.number, UNKNOWN_MEMBER, ())
        elif guise == "neighbour":
            generation = present or Generation(1, UNKNOWN_MEMBER, ())
        group = self.find_register(operation).partition("/")[0]
        outsider = self.session.membership("outsider", group, retention=MEMBERLESS_RETENTION)
        return await self.commit(outsider, operation, generation)

    @staticmethod
    def find_register(operation: Operation) -> str:
        key = str(operation.key)
        return f"{MEMBERLESS}/{key.partition('/')[2]}" if operation.argument["guise"] == "neighbour" else key


class Fetch(OffsetsVerb):
    """Fetches a committed offset. Result: ``{"number", "offset"}``, null and -1 if nothing is committed."""

    f = "fetch"

    async def invoke(self, operation: Operation) -> Completion:
        group, partition = split_register(operation)
        found = (await self.membership(group).committed([partition]))[partition]
        number = int(found.metadata) if found.metadata.lstrip("-").isdigit() else None
        return ok({"number": number, "offset": found.offset})

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        key, result = str(completed.operation.key), completed.completion.result
        group = split_register(completed.operation)[0]
        return (
            [Effect("fetched", key, position=result["offset"], value=result["number"], group=group)] if result else []
        )


class OffsetsClient(BrokerClient):
    """Client of offsets."""

    verbs = (JoinGroup, Leave, Commit, CommitInOldGeneration, CommitAsNonMember, Fetch, *EXPIRY_VERBS, *ADMIN)
    session_type = OffsetsSession


def _iterate_acquired(completed: Completed, entered: Mapping[str, Any] | None) -> Iterator[Effect]:
    if not entered or completed.ret is None:
        return
    for key in entered["partitions"] or [MEMBERS]:  # the member had joined, even if the commit failed
        generation, owner = entered["generation"], entered["owner"]
        yield Effect("acquire", key, generation=generation, owner=owner, group=MEMBERS, outcome=Outcome.OK)


def split_register(operation: Operation) -> tuple[str, tuple[str, int]]:
    """Splits a key such as ``members/orders-3`` into the group, and the topic with its partition.

    For the checks such a key is a register, whose value is the committed number.
    """
    group, _, partition = str(operation.key).partition("/")
    return group, split_key(partition)
