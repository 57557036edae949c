"""The operations of consumer group members, and generators of their traffic.

Operations without a key are executed by a member; their argument names the ``group``. Operations with a key are on a
log (``log_client``).

``ownership`` in a result lists the member's ownership changes since its last result, in order. Results of failed
operations have them, too. Ownership of a partition (a *hold*) has an assignment number of its own.

- ``{"kind": "acquire", "key", "generation", "owner", "assignment", "begin", "offset", "number"}``: the member reads
  from ``begin`` on, and the group had committed ``offset`` with ``number``. ``offset`` is null for a hold kept from the
  previous process. If the member owns nothing in a generation, ``key`` and the fields after ``assignment`` are null.
- ``lost`` and ``release``: the same fields up to ``assignment``, and ``end``, the position at the end of the hold if
  known.

If a client keeps its connections after an unknown outcome, its members go on, too. The history counts such a client as
a new process. Its members report their holds again, so that the checks know that no hold ended with the previous
process.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.generator import (
    PENDING,
    Answer,
    Context,
    Generator,
    OperationEvent,
    as_generator,
    mix,
    stagger,
    unfold,
)
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase
from assay.system_under_test.client.errors import ReadFailed
from assay.system_under_test.client.membership import CommitFailed, JoinFailed
from assay.workloads.broker.group_member import POLL_SECONDS, GroupMember
from assay.workloads.broker.log_names import to_failure
from assay.workloads.broker.log_operations import End, Send, make_out_of_range, to_columns
from assay.workloads.broker.verbs import Session, Verb, fail, ok

WORKERS: Final = "workers"
"""The group that reads during faults."""
DRAIN_GROUP: Final = "drain"
"""The group that reads all records at the end. It never commits, so each member starts at the beginning."""

SILENT_SECONDS: Final = 3.0
"""Seconds without heartbeats: more than a session, less than the timeout of an operation."""
OPERATION_SECONDS: Final = 5.0
"""Timeout of a member's operation, which includes a rebalance and the wait for lost members.

If operations timed out earlier, the group would also wait for their abandoned members, and would never settle.
"""
CHURN_SECONDS: Final = 1.2
"""Average time between two members that leave, die or fall silent."""


class MemberSession(Session):
    """The members of a client, one in each group. ``dead``: groups in which this process has died for good."""

    member_type: ClassVar[type[GroupMember]] = GroupMember

    def __init__(self, endpoint: Endpoint, runtime: Any) -> None:
        super().__init__(endpoint, runtime)
        self.members: dict[str, Any] = {}
        self.dead: set[str] = set()

    def on_unknown_outcome(self) -> None:
        for member in self.members.values():
            member.report_holds_again()

    async def close(self) -> None:
        """Stops the members. They do not notify their coordinators."""
        for member in self.members.values():
            await member.die()
        await super().close()


class MemberVerb(Verb):
    """An operation of an existing member. Its result may report ownership changes."""

    keyed = False
    session: MemberSession
    no_member_error: ClassVar[str] = "no-member"
    """The error if the client has no member."""

    async def invoke(self, operation: Operation) -> Completion:
        member = self.session.members.get(operation.argument["group"])
        return fail(self.no_member_error) if member is None else await self.use(member, operation.argument)

    async def use(self, member: GroupMember, argument: Mapping[str, Any]) -> Completion:
        """Executes the operation by the member."""
        raise NotImplementedError

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        """Yields the rows of ownership changes, which are certain even if the operation failed."""
        group = get_group(completed)
        certain = partial(Effect, group=group, outcome=Outcome.OK)
        for note in (completed.completion.result or {}).get("ownership", ()):
            key, assignment = group if note["key"] is None else note["key"], note["assignment"]
            of_member = {"generation": note["generation"], "owner": note["owner"], "assignment": assignment}
            yield certain(note["kind"], key, position=note.get("end"), **of_member)
            if note["kind"] == "acquire" and note["key"] is not None:
                begin, offset = note["begin"], note["offset"]
                if offset is not None:
                    yield certain("fetched", f"{group}/{key}", position=offset, value=note["number"])
                if offset is not None and offset < 0:
                    yield certain("start", key, position=begin)
                yield certain("seek", key, position=begin, assignment=assignment)


class PollGroup(MemberVerb):
    """Joins the group if necessary, and then requests new records of each owned partition once.

    Argument: ``{"group", "until"?}``. ``until`` has each sentinel's offset, in the drain.

    Result: ``{"ownership", "reads"}``. ``reads`` has for each partition ``{"key", "begin", "records", "end",
    "assignment"}``, with records as in a log's polls. If the position was out of range, ``{"key", "reset": offset,
    "from", "assignment"}`` comes first, with the assignment number of later reads.
    """

    f = "poll"

    @staticmethod
    def draw(group: str) -> Generator:
        """Yields polls by the group's members, for ever."""
        return as_generator(lambda context: Operation(PollGroup.f, argument={"group": group}))

    async def invoke(self, operation: Operation) -> Completion:
        session, group = self.session, operation.argument["group"]
        if group in session.dead:
            await asyncio.sleep(POLL_SECONDS)
            return fail("dead")
        if group not in session.members:
            session.members[group] = session.member_type(
                session.endpoint, group, session.runtime, session.assignment_numbers
            )
        member = session.members[group]
        try:
            reads = await member.poll()
        except (JoinFailed, ReadFailed) as error:
            await asyncio.sleep(POLL_SECONDS)
            return to_failure(error, {"ownership": member.take_notes()})
        return ok({"ownership": member.take_notes(), "reads": reads})

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        rows, group = [*super().effects(completed), *cls._iterate_reads(completed)], get_group(completed)
        if not rows and "ownership" in (completed.completion.result or {}):
            # The member owns nothing. This row shows that it lives. A partition without an owner counts as orphaned
            # only if a member lives.
            rows.append(Effect("idle", group, group=group, outcome=Outcome.OK))
        return rows

    @staticmethod
    def _iterate_reads(completed: Completed) -> Iterator[Effect]:
        group = get_group(completed)
        until: Mapping[str, int] = completed.operation.argument.get("until") or {}
        for read in (completed.completion.result or {}).get("reads", ()):
            key, assignment = read["key"], read["assignment"]
            if "reset" in read:
                yield make_out_of_range(key, read["from"], group)
                yield Effect("start", key, position=read["reset"], group=group)  # members begin at the earliest
                yield Effect("reset", key, position=read["reset"], group=group, assignment=assignment)
                continue
            yield Effect("observe-begin", key, position=read["begin"], group=group, assignment=assignment)
            for offset, value, *more in read["records"]:
                time_and_key = to_columns(more)
                yield Effect(
                    "observe", key, position=offset, value=value, group=group, assignment=assignment, **time_and_key
                )
            yield Effect("observe-end", key, position=read["end"], group=group, assignment=assignment)
            if completed.operation.phase is Phase.DRAIN and key in until and read["end"] > until[key]:
                yield Effect("drained", key, position=until[key] + 1, group=group)


class CommitPositions(MemberVerb):
    """Commits all positions of the member. The metadata is a unique number, because offsets may repeat.

    Argument: ``{"group", "number", "keys", "behind"?}``. ``keys``: the partitions that may be affected if the outcome
    is unknown. ``behind``: commits positions that are so many records earlier, as if the records were still processed.
    Result: ``{"generation", "owner", "positions": [[key, offset, assignment]]}``.
    """

    f = "commit"
    no_member_error = "owns-nothing"

    @staticmethod
    def draw(group: str, keys: Sequence[str]) -> Generator:
        """Yields commits of the members' positions, for ever."""

        def step(number: int, context: Context) -> tuple[Operation, int]:
            argument = {"group": group, "number": number, "keys": list(keys)}
            return Operation(CommitPositions.f, argument=argument), number + 1

        return unfold(step, 0)

    async def use(self, member: GroupMember, argument: Mapping[str, Any]) -> Completion:
        behind = argument.get("behind", 0)
        result = member.describe_commit(behind)
        if result is None:
            return fail(self.no_member_error)
        try:
            await member.commit(argument["number"], behind)
        except CommitFailed as error:
            return to_failure(error, result)
        return ok(result)

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        """Yields a row for each committed partition. Without an answer, these are all that may be affected."""
        group, number = get_group(completed), completed.operation.argument["number"]
        row, result = partial(Effect, "commit", value=number, group=group), completed.completion.result
        if result is None and completed.completion.outcome is Outcome.INFO:
            for key in completed.operation.argument["keys"]:
                yield row(key=f"{group}/{key}")
        for key, offset, assignment in [] if result is None else result["positions"]:
            of_member = {"generation": result["generation"], "owner": result["owner"], "assignment": assignment}
            yield row(key=f"{group}/{key}", position=offset, **of_member)


class Rewind(MemberVerb):
    """Reads the last ``back`` records of each partition again.

    Argument: ``{"group", "back"}``. Result: ``{"sought": [[key, offset, assignment], ...]}``.
    """

    f = "rewind"

    async def use(self, member: GroupMember, argument: Mapping[str, Any]) -> Completion:
        return ok({"sought": member.rewind(argument["back"])})

    @classmethod
    def effects(cls, completed: Completed) -> Iterator[Effect]:
        for key, position, assignment in (completed.completion.result or {}).get("sought", ()):
            yield Effect("seek", key, position=position, group=get_group(completed), assignment=assignment)


class LeaveGroup(MemberVerb):
    """Leaves the group and notifies the coordinator. Argument: ``{"group", "for_good"?}``. Result: ``{"ownership"}``.

    The client rejoins as another member at the next poll, unless ``for_good``.
    """

    f = "leave"

    async def invoke(self, operation: Operation) -> Completion:
        group = operation.argument["group"]
        if operation.argument.get("for_good"):
            self.session.dead.add(group)
        member = self.session.members.pop(group, None)
        if member is None:
            return fail(self.no_member_error)
        await self.stop(member)
        return ok({"ownership": member.take_notes()})

    @staticmethod
    async def stop(member: GroupMember) -> None:
        await member.leave()


class Die(LeaveGroup):
    """Like ``leave``, but without a notification."""

    f = "die"

    @staticmethod
    async def stop(member: GroupMember) -> None:
        await member.die()


class FallSilent(MemberVerb):
    """Stops heartbeats and all other work. The member then continues until a heartbeat or commit is rejected.

    Argument: ``{"group", "seconds"}``.
    """

    f = "silence"

    async def use(self, member: GroupMember, argument: Mapping[str, Any]) -> Completion:
        await member.fall_silent(argument["seconds"])
        return ok()


MEMBER_VERBS: Final = (PollGroup, CommitPositions, Rewind, LeaveGroup, Die, FallSilent)


ANY_MEMBER_ONE_IN: Final = 8
"""On average, one in this many operations may go to a member that owns nothing."""


class OwnerRestriction(Generator, frozen=True):
    """Generator of :func:`restrict_to_owners`. ``owners``: bit mask of the workers whose members own partitions."""

    group: str
    source: Generator
    owners: int = 0

    def op(self, context: Context) -> tuple[Answer, Generator]:
        if not context.random_below(ANY_MEMBER_ONE_IN, salt=58):
            answer, after = self.source.op(context)
        elif context.free & self.owners:
            answer, after = self.source.op(context.restrict(self.owners))
        else:
            return PENDING, self
        return answer, OwnerRestriction(self.group, after, self.owners)

    def update(self, context: Context, event: OperationEvent) -> Generator:
        worker, completed = 1 << event.worker, event.completed
        if completed is None:
            return self
        if completed.completion.outcome is Outcome.INFO:
            return OwnerRestriction(self.group, self.source, self.owners & ~worker)
        argument = completed.operation.argument
        if completed.operation.key is not None or not isinstance(argument, dict) or argument.get("group") != self.group:
            return self
        reads = (completed.completion.result or {}).get("reads")
        if reads is None and completed.operation.f not in (LeaveGroup.f, Die.f):
            return self
        return OwnerRestriction(self.group, self.source, self.owners | worker if reads else self.owners & ~worker)


def restrict_to_owners(group: str, source: Generator) -> Generator:
    """Sends a group's operations to members that own a partition; one in :data:`ANY_MEMBER_ONE_IN` to any member.

    If there are more members than partitions, most members have nothing to commit.
    """
    return OwnerRestriction(group, source)


def churn(group: str) -> Generator:
    """Yields operations that let members leave, fall silent and die, for ever."""

    def step(turn: int, context: Context) -> tuple[Operation, int]:
        f = (LeaveGroup.f, FallSilent.f, Die.f)[turn % 3]
        argument: dict[str, Any] = {"group": group}
        return Operation(f, argument=argument | ({"seconds": SILENT_SECONDS} if f == FallSilent.f else {})), turn + 1

    return unfold(step, 0)


def traffic(keys: Sequence[str], group: str = WORKERS, *, owned: Sequence[str] = ()) -> Generator:
    """Returns the usual mix: sends, polls and commits (by owners) equally often, and members that leave and rejoin.

    ``owned``: all partitions that members may own, if they may own more than ``keys``.
    """
    return mix(
        Send.draw(keys),
        PollGroup.draw(group),
        restrict_to_owners(group, CommitPositions.draw(group, owned or keys)),
        End.draw(keys),
        stagger(CHURN_SECONDS, churn(group)),
        weights=(8, 8, 8, 1, 4),
    )


def get_group(completed: Completed) -> str:
    group: str = completed.operation.argument["group"]
    return group
