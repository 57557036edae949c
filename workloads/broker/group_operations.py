"""The operations of consumer group members, their effects, and their traffic.

Operations without a key, by ``f``; operations with a key are on a log (``assay.workloads.broker.log_client``):

============  ==================================  ====================================================================
f             argument                            result
============  ==================================  ====================================================================
``poll``      ``{"group", "until"?}``             ``{"ownership": [...], "reads": [...]}``
``commit``    ``{"group", "number", "keys"}``     ``{"generation", "owner", "positions": [[key, offset, assignment]]}``
``rewind``    ``{"group", "back"}``               ``{"sought": [[key, offset, assignment], ...]}``
``leave``     ``{"group"}``                       ``{"ownership": [...]}``
``die``       ``{"group", "for_good"?}``          ``{"ownership": [...]}``
``silence``   ``{"group", "seconds"}``            none
============  ==================================  ====================================================================

A **poll** joins the group if necessary, and then requests new records of each owned partition once. ``until`` has each
sentinel's offset, in the drain. ``reads`` has for each partition ``{"key", "begin", "records", "end", "assignment"}``,
with records as in a log's polls. If the position was out of range, ``{"key", "reset": offset, "from", "assignment"}``
comes first, with the assignment number of later reads.

``ownership`` lists the member's ownership changes since its last answer, in order; a failed answer reports them, too.
Each hold, from an acquire on, has an assignment number of its own.

- ``{"kind": "acquire", "key", "generation", "owner", "assignment", "begin", "offset", "number"}``: the member reads
  from ``begin`` on, and the group had committed ``offset`` with ``number``. ``offset`` is null for a hold kept from the
  previous process. ``key`` and the fields after ``assignment`` are null for a generation in which the member owns
  nothing.
- ``lost`` and ``release``: the same fields up to ``assignment``, and ``end``, the position at the end of the hold if
  known.

The other operations:

- A **commit** covers all positions of the member, with its number as metadata, because offsets repeat and numbers do
  not. ``keys``: the partitions that may be affected if the outcome is unknown. With ``behind``, positions are that many
  records earlier, like those of an unfinished worker.
- A **rewind** reads the last ``back`` records again.
- A member that **leaves** notifies the group; a member that **dies** does not. Both rejoin as another member at the
  next poll, unless ``for_good``.
- A **silence** stops heartbeats and all other work. The member then continues until a heartbeat or commit is rejected.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
from assay.harness.core.operation import Completed, Effect, Operation, Outcome, Phase
from assay.workloads.broker import log_operations
from assay.workloads.broker.log_operations import POLL, end, send

COMMIT: Final = "commit"
LEAVE: Final = "leave"
DIE: Final = "die"
SILENCE: Final = "silence"
REWIND: Final = "rewind"

WORKERS: Final = "workers"
"""The group that reads during faults."""
DRAIN: Final = "drain"
"""The group that reads everything at the end; it never commits, so each member starts at the beginning."""

SESSION_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 3.0
"""Longer than a session, shorter than the time of an operation."""
OPERATION_SECONDS: Final = 5.0
"""Timeout of a member's operation, which includes a rebalance and the wait for lost members. If operations timed out
earlier, the group would also wait for the members that they leave behind, and a large group would never settle.
"""
CHURN_SECONDS: Final = 1.2
"""Average time between two members that leave, die or fall silent."""


def poll(group: str) -> Generator:
    """Polls of the group's members, for ever."""
    return as_generator(lambda context: Operation(POLL, argument={"group": group}))


ANY_MEMBER_ONE_IN: Final = 8
"""On average, every n-th operation may go to a member that owns nothing."""


class OwnerRestriction(Generator, frozen=True):
    """See :func:`restrict_to_owners`. ``owners`` has a bit for each worker whose member owned partitions last."""

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
        if reads is None and completed.operation.f not in (LEAVE, DIE):
            return self
        return OwnerRestriction(self.group, self.source, self.owners | worker if reads else self.owners & ~worker)


def restrict_to_owners(group: str, source: Generator) -> Generator:
    """Sends a group's operations to members that own something; one in :data:`ANYONE` goes to any member. With more
    members than partitions, most own nothing and have nothing to commit.
    """
    return OwnerRestriction(group, source)


def commit(group: str, keys: Sequence[str]) -> Generator:
    """Commits of the members' positions, for ever."""

    def step(number: int, context: Context) -> tuple[Operation, int]:
        return Operation(COMMIT, argument={"group": group, "number": number, "keys": list(keys)}), number + 1

    return unfold(step, 0)


def churn(group: str) -> Generator:
    """Members that leave, fall silent and die in turn, for ever."""

    def step(turn: int, context: Context) -> tuple[Operation, int]:
        f = (LEAVE, SILENCE, DIE)[turn % 3]
        argument: dict[str, Any] = {"group": group}
        return Operation(f, argument=argument | ({"seconds": SILENT_SECONDS} if f == SILENCE else {})), turn + 1

    return unfold(step, 0)


def traffic(keys: Sequence[str], group: str = WORKERS, *, owned: Sequence[str] = ()) -> Generator:
    """The usual mix: equal numbers of sends, polls and commits (by owners), and members that come and go. ``owned``:
    all partitions that members may own, if there are more.
    """
    return mix(
        send(keys),
        poll(group),
        restrict_to_owners(group, commit(group, owned or keys)),
        end(keys),
        stagger(CHURN_SECONDS, churn(group)),
        weights=(8, 8, 8, 1, 4),
    )


def effects(completed: Completed) -> Sequence[Effect]:
    """Returns the ``effects`` rows of one operation, in order; see ``assay.checkers.log.family`` and
    ``assay.checkers.groups.family``.
    """
    match completed.operation.f:
        case "poll":
            return [*_iterate_ownership(completed), *_iterate_reads(completed)] or list(_iterate_idle(completed))
        case "leave" | "die":
            return list(_iterate_ownership(completed))
        case "commit":
            return list(_iterate_commits(completed))
        case "rewind":
            return list(_iterate_seeks(completed))
        case "silence":
            return ()
        case other:
            raise ValueError(f"unknown operation of a group member: {other!r}")


def _iterate_idle(completed: Completed) -> Iterator[Effect]:
    """Yields a row for a member that owns nothing: otherwise no partition could count as orphaned."""
    if "ownership" in (completed.completion.result or {}):
        group = _get_group(completed)
        yield Effect("idle", group, group=group, outcome=Outcome.OK)


def _iterate_ownership(completed: Completed) -> Iterator[Effect]:
    """Yields rows of ownership changes. They are certain, even if the operation that reported them failed."""
    group = _get_group(completed)
    for note in (completed.completion.result or {}).get("ownership", ()):
        key = note["key"] if note["key"] is not None else group
        assignment = note["assignment"]
        yield Effect(
            note["kind"],
            key,
            position=note.get("end"),
            generation=note["generation"],
            owner=note["owner"],
            group=group,
            assignment=assignment,
            outcome=Outcome.OK,
        )
        if note["kind"] == "acquire" and note["key"] is not None:
            if note["offset"] is not None:
                yield Effect(
                    "fetched",
                    _format_register(group, key),
                    position=note["offset"],
                    value=note["number"],
                    group=group,
                    outcome=Outcome.OK,
                )
                if note["offset"] < 0:
                    yield Effect("start", key, position=note["begin"], group=group, outcome=Outcome.OK)
            yield Effect("seek", key, position=note["begin"], group=group, assignment=assignment, outcome=Outcome.OK)


def _iterate_reads(completed: Completed) -> Iterator[Effect]:
    group = _get_group(completed)
    until: Mapping[str, int] = completed.operation.argument.get("until") or {}
    for read in (completed.completion.result or {}).get("reads", ()):
        key, assignment = read["key"], read["assignment"]
        if "reset" in read:
            yield log_operations.make_out_of_range(key, read["from"], group)
            yield Effect("start", key, position=read["reset"], group=group)  # members begin at the earliest
            yield Effect("reset", key, position=read["reset"], group=group, assignment=assignment)
            continue
        yield Effect("observe-begin", key, position=read["begin"], group=group, assignment=assignment)
        for offset, value, *more in read["records"]:
            about = log_operations.to_columns(more)
            yield Effect("observe", key, position=offset, value=value, group=group, assignment=assignment, **about)
        yield Effect("observe-end", key, position=read["end"], group=group, assignment=assignment)
        if completed.operation.phase is Phase.DRAIN and key in until and read["end"] > until[key]:
            yield Effect("drained", key, position=until[key] + 1, group=group)


def _iterate_seeks(completed: Completed) -> Iterator[Effect]:
    group = _get_group(completed)
    for key, position, assignment in (completed.completion.result or {}).get("sought", ()):
        yield Effect("seek", key, position=position, group=group, assignment=assignment)


def _iterate_commits(completed: Completed) -> Iterator[Effect]:
    """Yields a row for each committed partition or, without an answer, for each partition that may be affected."""
    group, number = _get_group(completed), completed.operation.argument["number"]
    result = completed.completion.result
    if result is None:
        if completed.completion.outcome is Outcome.INFO:
            for key in completed.operation.argument["keys"]:
                yield Effect("commit", _format_register(group, key), value=number, group=group)
        return
    for key, offset, assignment in result["positions"]:
        yield Effect(
            "commit",
            _format_register(group, key),
            position=offset,
            value=number,
            generation=result["generation"],
            owner=result["owner"],
            group=group,
            assignment=assignment,
        )


def _get_group(completed: Completed) -> str:
    group: str = completed.operation.argument["group"]
    return group


def _format_register(group: str, key: str) -> str:
    """Returns the register key of a group's offset in a partition."""
    return f"{group}/{key}"
