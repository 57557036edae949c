"""Short-lived groups whose offsets are retained briefly: operations, effects and traffic.

==========  ==============================================================  =====================================
f           argument                                                        result
==========  ==============================================================  =====================================
``keep``    ``{"group", "number", "offsets": {key: offset}, "kept",         ``{"generation", "owner"}``, null for
            "own", "member"}``                                              a client that is not a member
``look``    ``{"group", "keys"}``                                           ``{"found": {key: number}}``, null
                                                                            if there is no offset
``part``    none                                                            none
``renew``   ``{"group", "number", "offsets": {key: offset}, "kept"}``       ``{"outcomes"}``: of both commits
==========  ==============================================================  =====================================

A ``keep`` commits all its offsets at once, either outside any membership (rejected while there are members) or as a
``member``. A member joins first if necessary, and stays until the client leaves all its groups by ``part``. ``kept``:
the retention of the offsets in milliseconds. With ``own`` the client requests it; otherwise, and for members always, it
is the brokers' setting.

A ``renew`` commits twice without membership: first with a short retention, and then, just as that expires, with the
next number and a long retention. The broker may be about to expire the old offset, and must not expire the new one.
"""

import asyncio
from collections.abc import Mapping, Sequence
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
from assay.workloads.broker.log_names import describe_error, split_key, to_outcome

KEEP: Final = "keep"
LOOK: Final = "look"
PART: Final = "part"
RENEW: Final = "renew"
OPERATIONS: Final = (KEEP, LOOK, PART, RENEW)

BRIEF: Final = ("brief1", "brief2", "brief3")
"""The first group never has members."""
RENEWED: Final = "renewed"
"""A group without members, whose offsets are renewed."""
SHORT: Final = (300, 700, 1500, 2500)
LONG: Final = 600_000
MILLISECOND: Final = 1_000_000
STEPS: Final = ((RENEW, SHORT[0] + 150), (LOOK, 300), (LOOK, 200))
"""The cycle of a renewed offset: steps, each with the milliseconds until the next."""
JITTER: Final = 0.02
"""Maximum seconds from the expiry of an offset to its renewal."""
LOOKS, PARTINGS = 50, 30
"""Per hundred operations."""
OFFSETS: Final = 1_000
SESSION_SECONDS: Final = 1.5
CALL_SECONDS: Final = 2.0
LOOKING_SECONDS: Final = 14.0
"""At the end: longer than the contract's deadline, so that the last commit may expire."""


class ExpiringGroupsClient:
    """A client's share in these groups. Raises the client library's errors."""

    def __init__(self, endpoint: Endpoint, runtime: Any) -> None:
        self._bootstrap = list(endpoint.all)
        self._runtime = runtime
        self._outsiders: dict[tuple[str, int | None], Membership] = {}
        self._members: dict[str, Membership] = {}

    async def close(self) -> None:
        for membership in (*self._outsiders.values(), *self._members.values()):
            await membership.close()

    async def invoke(self, operation: Operation) -> Completion:
        argument = operation.argument
        match operation.f:
            case "keep" if argument["member"]:
                return await self._keep_as_member(argument)
            case "keep":
                outsider = self._outsider(argument["group"], argument["kept"] if argument["own"] else None)
                return await self._keep(outsider, argument, None)
            case "look":
                return await self._look(argument)
            case "renew":
                return await self._renew(argument)
        return await self._part()

    async def _part(self) -> Completion:
        if not self._members:
            return Completion(Outcome.FAIL, error="no-member")
        for group, member in list(self._members.items()):
            await member.leave()
            await member.close()
            del self._members[group]
        return Completion(Outcome.OK)

    async def _keep_as_member(self, argument: dict[str, Any]) -> Completion:
        group = argument["group"]
        if group not in self._members:
            self._members[group] = self._membership(group, ("orders",), None)
        member = self._members[group]
        return await self._keep(member, argument, member.generation or await member.enter())

    async def _keep(self, membership: Membership, argument: dict[str, Any], under: Generation | None) -> Completion:
        said = {
            "generation": None if under is None else under.number,
            "owner": None if under is None else under.member_id,
        }
        positions = {
            split_key(key): Position(offset, str(argument["number"])) for key, offset in argument["offsets"].items()
        }
        try:
            await membership.commit(positions, under)
        except CommitFailed as error:
            return Completion(to_outcome(error.outcome), said, error=describe_error(error))
        return Completion(Outcome.OK, said)

    async def _renew(self, argument: dict[str, Any]) -> Completion:
        outcomes: list[Outcome] = []
        for number, kept in _list_commits(argument):
            if outcomes:
                await asyncio.sleep(argument["kept"] / 1000 + JITTER * self._runtime.random.random())
            commit = argument | {"number": number}
            outcome = (await self._keep(self._outsider(argument["group"], kept), commit, None)).outcome
            outcomes.append(outcome)
            if outcome is not Outcome.OK:
                break
        return Completion(outcomes[-1], {"outcomes": outcomes})

    async def _look(self, argument: dict[str, Any]) -> Completion:
        wanted = {split_key(key): key for key in argument["keys"]}
        found = await self._outsider(argument["group"], None).committed(list(wanted))
        numbers = {wanted[one]: None if at.offset < 0 else int(at.metadata) for one, at in found.items()}
        return Completion(Outcome.OK, {"found": numbers})

    def _outsider(self, group: str, kept: int | None) -> Membership:
        if (group, kept) not in self._outsiders:
            self._outsiders[group, kept] = self._membership(group, (), kept)
        return self._outsiders[group, kept]

    def _membership(self, group: str, topics: Sequence[str], kept: int | None) -> Membership:
        config = MemberConfig(
            session_timeout=SESSION_SECONDS,
            rebalance_timeout=SESSION_SECONDS,
            timeout=CALL_SECONDS,
            retention=None if kept is None else kept / 1000,
        )
        return Membership(self._bootstrap, group, topics, config, runtime=self._runtime)


def effects(completed: Completed) -> list[Effect]:
    """Returns rows as ``assay.checkers.groups.expiry`` describes them."""
    operation, result = completed.operation, completed.completion.result or {}
    if operation.f == PART:
        return [Effect("part", group, group=group) for group in BRIEF]
    argument = operation.argument
    group = argument["group"]
    if operation.f == RENEW:
        outcomes = [Outcome(one) for one in result.get("outcomes", (Outcome.INFO, Outcome.INFO))]
        return [
            Effect(
                "keep", f"{group}/{key}", position=offset, value=number, group=group, retention_ms=kept, outcome=outcome
            )
            for (number, kept), outcome in zip(_list_commits(argument), outcomes, strict=False)
            for key, offset in argument["offsets"].items()
        ]
    if operation.f == LOOK:
        found = result.get("found", {})
        return [Effect("kept", f"{group}/{key}", value=number, group=group) for key, number in found.items()]
    return [
        Effect(
            "keep",
            f"{group}/{key}",
            position=offset,
            value=argument["number"],
            generation=result.get("generation"),
            owner=result.get("owner"),
            group=group,
            retention_ms=argument["kept"],
        )
        for key, offset in argument["offsets"].items()
    ]


def _list_commits(argument: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Number and retention in milliseconds of both commits of a renewal."""
    return [(argument["number"], argument["kept"]), (argument["number"] + 1, LONG)]


def traffic(keys: Sequence[str], kept: int) -> Generator:
    """Commits, looks, and members that leave, for ever. ``kept``: the brokers' retention in milliseconds."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        group, chance = context.choose(BRIEF, salt=61), context.random_below(100, salt=62)
        if chance < LOOKS:
            return Operation(LOOK, argument={"group": group, "keys": list(keys)}), number
        if chance < LOOKS + PARTINGS:
            return Operation(PART), number
        member = group != BRIEF[0] and context.random_below(4, salt=63) == 0
        own = not member and context.random_below(4, salt=64) > 0
        some = [key for rank, key in enumerate(keys) if context.random_below(2, salt=70 + rank)] or keys[:1]
        argument = {
            "group": group,
            "number": number,
            "offsets": {key: context.random_below(OFFSETS, salt=65) for key in some},
            "kept": context.choose((*SHORT, LONG), salt=66) if own else kept,
            "own": own,
            "member": member,
        }
        return Operation(KEEP, argument=argument), number + 1

    return unfold(step, 1)


class RenewalGenerator(Generator, frozen=True):
    """Renews offsets and looks at each twice, for ever. ``turns``: when each key is due, and its next step."""

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
        if f == LOOK:
            return Operation(LOOK, argument={"group": RENEWED, "keys": [key]})
        offsets = {key: context.random_below(OFFSETS, salt=67)}
        argument = {"group": RENEWED, "number": self.number, "offsets": offsets, "kept": SHORT[0]}
        return Operation(RENEW, argument=argument)


def renewals(keys: Sequence[str]) -> Generator:
    """See :class:`Renewals`; all keys are due at once."""
    return RenewalGenerator(tuple(keys), ((0, 0),) * len(keys))


def farewell(keys: Sequence[str]) -> Generator:
    """All members leave; then repeated looks show which offsets stay."""

    def step(turn: int, context: Context) -> tuple[Operation, int]:
        argument = {"group": BRIEF[turn % len(BRIEF)], "keys": list(keys)}
        return Operation(LOOK, argument=argument, phase=Phase.DRAIN), turn + 1

    looking = time_limit(LOOKING_SECONDS, stagger(0.3, unfold(step, 0)))
    return phases(each_process(Operation(PART, phase=Phase.DRAIN)), looking)
