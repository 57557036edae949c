"""Short-lived groups whose offsets are retained briefly: operations and traffic.

The operations are ``keep`` (commit), ``look`` (fetch offsets), ``part`` (leave all groups), and ``renew`` (commit
twice). Their effects are ``keep`` for each committed offset, ``kept`` for each fetched offset, and ``part``.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.generator import (
    PENDING,
    Answer,
    Context,
    Generator,
    Invoke,
    Pending,
    each_process,
    phases,
    stagger,
    time_limit,
    unfold,
)
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase
from assay.system_under_test.client.config import MemberConfig
from assay.system_under_test.client.membership import CommitFailed, Generation, Membership, Position
from assay.workloads.broker.log_names import split_key, to_failure
from assay.workloads.broker.verbs import Session, Verb, fail, ok

BRIEF: Final = ("brief1", "brief2", "brief3")
"""The first group never has members."""
RENEWED: Final = "renewed"
"""A group without members, whose offsets are renewed."""
SHORT_MS: Final = (300, 700, 1500, 2500)
"""Milliseconds for which offsets are retained: within a run they expire."""
LONG_MS: Final = 600_000
"""Milliseconds for which offsets are retained: within a run they do not expire."""
MILLISECOND: Final = 1_000_000
"""Nanoseconds."""
JITTER: Final = 0.02
"""Maximum seconds from the expiry of an offset to its renewal."""
LOOK_PERCENT, PART_PERCENT = 50, 30
"""Percentages of ``look`` and ``part`` operations in the traffic."""
OFFSETS: Final = 1_000
SESSION_SECONDS: Final = 1.5
CALL_SECONDS: Final = 2.0
"""Time limit of a call. Two calls, a join and a commit, fit into the timeout of an operation (5 s).

It is longer than a session and a rebalance, so that a join is answered while the coordinator waits for lost members.
"""
LOOKING_SECONDS: Final = 14.0
"""Seconds of fetches at the end: longer than the contract's deadline, so that the last commit may expire."""


class OffsetsSession(Session):
    """The memberships of a client, in several groups.

    - ``present``: the generation of the client's member in the group ``members``
    - ``former``: the generation before it
    - ``brief``: the client's members in the groups of this module, by group
    """

    def __init__(self, endpoint: Endpoint, runtime: Any) -> None:
        super().__init__(endpoint, runtime)
        self.present: Generation | None = None
        self.former: Generation | None = None
        self.brief: dict[str, Membership] = {}

    def make_membership(self, group: str, topics: Sequence[str], retention: float | None) -> Membership:
        """Returns a new membership, which has not joined yet, and which the session does not close."""
        config = MemberConfig(
            session_timeout=SESSION_SECONDS,
            rebalance_timeout=SESSION_SECONDS,
            timeout=CALL_SECONDS,
            retention=retention,
        )
        return Membership(self.bootstrap, group, topics, config, runtime=self.runtime)

    def membership(
        self, name: str, group: str, topics: Sequence[str] = (), retention: float | None = None
    ) -> Membership:
        """Returns the membership of this name in the group. A membership without topics never joins."""
        return self.get_or_make((name, group, retention), lambda: self.make_membership(group, topics, retention))

    async def close(self) -> None:
        for member in self.brief.values():
            await member.close()
        await super().close()


class BriefVerb(Verb):
    """An operation of the groups of this module."""

    keyed = False
    session: OffsetsSession

    def get_outsider(self, group: str, retention_ms: int | None) -> Membership:
        """Returns a membership that never joins the group. Its offsets have this retention; None: the brokers' one."""
        return self.session.membership("brief", group, retention=None if retention_ms is None else retention_ms / 1000)

    @staticmethod
    async def commit(membership: Membership, argument: Mapping[str, Any], generation: Generation | None) -> Completion:
        """Commits all offsets of the argument at once. ``generation``: the member's one; None: as no member."""
        result = {
            "generation": None if generation is None else generation.number,
            "owner": None if generation is None else generation.member_id,
        }
        positions = {
            split_key(key): Position(offset, str(argument["number"])) for key, offset in argument["offsets"].items()
        }
        try:
            await membership.commit(positions, generation)
        except CommitFailed as error:
            return to_failure(error, result)
        return ok(result)


class CommitOffsets(BriefVerb):
    """Commits all offsets of its argument at once.

    Argument: ``{"group", "number", "offsets": {key: offset}, "retention_ms", "own", "member"}``.

    - ``number``: the commit's number, which is stored as the metadata of its offsets.
    - ``member``: whether the client commits as a member. If necessary, it joins first, and stays until ``part``. While
      a group has members, brokers reject commits of other clients.
    - ``retention_ms``: the retention of the offsets in milliseconds.
    - ``own``: whether the client requests this retention. If not, and always for members, it is the brokers' setting.

    Result: ``{"generation", "owner"}``, null for a client that is not a member.
    """

    f = "keep"

    async def invoke(self, operation: Operation) -> Completion:
        argument = operation.argument
        group = argument["group"]
        if not argument["member"]:
            outsider = self.get_outsider(group, argument["retention_ms"] if argument["own"] else None)
            return await self.commit(outsider, argument, None)
        if group not in self.session.brief:
            self.session.brief[group] = self.session.make_membership(group, ("orders",), None)
        member = self.session.brief[group]
        return await self.commit(member, argument, member.generation or await member.enter())  # ``enter`` joins

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        """Returns the rows that ``assay.checkers.groups.expiry`` describes."""
        argument, result = completed.operation.argument, completed.completion.result or {}
        group = argument["group"]
        return [
            Effect(
                "keep",
                f"{group}/{key}",
                position=offset,
                value=argument["number"],
                generation=result.get("generation"),
                owner=result.get("owner"),
                group=group,
                retention_ms=argument["retention_ms"],
            )
            for key, offset in argument["offsets"].items()
        ]


class FetchOffsets(BriefVerb):
    """Fetches offsets. Argument: ``{"group", "keys"}``.

    Result: ``{"found": {key: number}}``, with the numbers of the commits; null for a key without an offset.
    """

    f = "look"

    async def invoke(self, operation: Operation) -> Completion:
        wanted = {split_key(key): key for key in operation.argument["keys"]}
        found = await self.get_outsider(operation.argument["group"], None).committed(list(wanted))
        return ok({"found": {wanted[one]: None if at.offset < 0 else int(at.metadata) for one, at in found.items()}})

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        group, found = completed.operation.argument["group"], (completed.completion.result or {}).get("found", {})
        return [Effect("kept", f"{group}/{key}", value=number, group=group) for key, number in found.items()]


class LeaveGroups(BriefVerb):
    """Leaves all groups of this module."""

    f = "part"

    async def invoke(self, operation: Operation) -> Completion:
        members = self.session.brief
        if not members:
            return fail("no-member")
        for group, member in list(members.items()):
            await member.leave()
            await member.close()
            del members[group]
        return ok()

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        return [Effect("part", group, group=group) for group in BRIEF]


class RenewOffsets(BriefVerb):
    """Commits twice without membership. The first commit has a short retention. The second one follows just when the
    first expires, with the next number and a long retention.

    The broker may be about to expire the first offset, and must not expire the second. Argument: ``{"group", "number",
    "offsets": {key: offset}, "retention_ms"}``. Result: ``{"outcomes"}`` of both commits.
    """

    f = "renew"

    async def invoke(self, operation: Operation) -> Completion:
        argument = operation.argument
        outcomes: list[Outcome] = []
        for number, retention_ms in _list_commits(argument):
            if outcomes:
                await asyncio.sleep(argument["retention_ms"] / 1000 + JITTER * self.session.runtime.random.random())
            outsider = self.get_outsider(argument["group"], retention_ms)
            outcomes.append((await self.commit(outsider, argument | {"number": number}, None)).outcome)
            if outcomes[-1] is not Outcome.OK:
                break
        return Completion(outcomes[-1], {"outcomes": outcomes})

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        argument, result = completed.operation.argument, completed.completion.result or {}
        group = argument["group"]
        outcomes = [Outcome(one) for one in result.get("outcomes", (Outcome.INFO, Outcome.INFO))]
        return [
            Effect(
                "keep",
                f"{group}/{key}",
                position=offset,
                value=number,
                group=group,
                retention_ms=retention_ms,
                outcome=outcome,
            )
            for (number, retention_ms), outcome in zip(_list_commits(argument), outcomes, strict=False)
            for key, offset in argument["offsets"].items()
        ]


def _list_commits(argument: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Returns the number and the retention (in milliseconds) of both commits of a renewal."""
    return [(argument["number"], argument["retention_ms"]), (argument["number"] + 1, LONG_MS)]


EXPIRY_VERBS: Final = (CommitOffsets, FetchOffsets, LeaveGroups, RenewOffsets)
STEPS: Final = ((RenewOffsets.f, SHORT_MS[0] + 150), (FetchOffsets.f, 300), (FetchOffsets.f, 200))
"""The cycle of a renewed offset: its operations, each with the milliseconds until the next one."""


def traffic(keys: Sequence[str], broker_retention_ms: int) -> Generator:
    """Yields commits, fetches of offsets, and leaves, for ever. ``broker_retention_ms``: the brokers' setting."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        group, chance = context.choose(BRIEF, salt=61), context.random_below(100, salt=62)
        if chance < LOOK_PERCENT:
            return Operation(FetchOffsets.f, argument={"group": group, "keys": list(keys)}), number
        if chance < LOOK_PERCENT + PART_PERCENT:
            return Operation(LeaveGroups.f), number
        member = group != BRIEF[0] and context.random_below(4, salt=63) == 0
        own = not member and context.random_below(4, salt=64) > 0
        some = [key for rank, key in enumerate(keys) if context.random_below(2, salt=70 + rank)] or keys[:1]
        argument = {
            "group": group,
            "number": number,
            "offsets": {key: context.random_below(OFFSETS, salt=65) for key in some},
            "retention_ms": context.choose((*SHORT_MS, LONG_MS), salt=66) if own else broker_retention_ms,
            "own": own,
            "member": member,
        }
        return Operation(CommitOffsets.f, argument=argument), number + 1

    return unfold(step, 1)


class RenewalGenerator(Generator, frozen=True):
    """Renews offsets and fetches each twice, for ever. ``turns``: for each key, the time and index of its next step."""

    keys: tuple[str, ...]
    turns: tuple[tuple[int, int], ...]
    number: int = 1

    def op(self, context: Context) -> tuple[Answer, Generator]:
        (due, step), rank = min((turn, rank) for rank, turn in enumerate(self.turns))
        if not context.free:
            return PENDING, self
        if due > context.time:
            return Pending(due), self
        f, later = STEPS[step]
        following = context.time + later * MILLISECOND, (step + 1) % len(STEPS)
        turns = (*self.turns[:rank], following, *self.turns[rank + 1 :])
        operation = self._operation(f, self.keys[rank], context)
        return Invoke(operation, context.pick()), RenewalGenerator(self.keys, turns, self.number + 2)

    def _operation(self, f: str, key: str, context: Context) -> Operation:
        if f == FetchOffsets.f:
            return Operation(FetchOffsets.f, argument={"group": RENEWED, "keys": [key]})
        offsets = {key: context.random_below(OFFSETS, salt=67)}
        argument = {"group": RENEWED, "number": self.number, "offsets": offsets, "retention_ms": SHORT_MS[0]}
        return Operation(RenewOffsets.f, argument=argument)


def renewals(keys: Sequence[str]) -> Generator:
    """Returns a :class:`RenewalGenerator` that begins with all keys at once."""
    return RenewalGenerator(tuple(keys), ((0, 0),) * len(keys))


def leave_and_look(keys: Sequence[str]) -> Generator:
    """Yields leaves of all members, and then repeated fetches, which show how long the offsets stay."""

    def step(turn: int, context: Context) -> tuple[Operation, int]:
        argument = {"group": BRIEF[turn % len(BRIEF)], "keys": list(keys)}
        return Operation(FetchOffsets.f, argument=argument, phase=Phase.DRAIN), turn + 1

    looking = time_limit(LOOKING_SECONDS, stagger(0.3, unfold(step, 0)))
    return phases(each_process(Operation(LeaveGroups.f, phase=Phase.DRAIN)), looking)
