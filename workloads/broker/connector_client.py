"""Client of consumer groups of the old design, which coordinate through ZooKeeper.

Each client is a process of the history, and a member of each group. Operations and results are those of
``assay.workloads.broker.group_operations``, with these differences:

- ``poll`` and ``commit`` have a ``mode``, the storage of the group's offsets. A member in another mode shuts down first
  and rejoins in the requested mode.
- If a commit has an unknown outcome, the operation is ok, its effects are unknown, and the member goes on.
- Every result has ``commits``: ``{"outcome", "positions": [[key, offset]]}`` of each commit attempt in the operation,
  including a commit before a release.
- Every result has ``claims``: ``{"owner", "seen", "made", "shares": [[key, member]]}`` of each claim that acquired
  a partition, like the library's ``Claim``.
- Every result has ``effort``: the increase of the member's ``RebalanceCounters`` since its last result, without zeros.

A member takes part in its group all the time, not only during a poll. But it begins a release only during an operation,
so that the history has its time: an operation that reports a release was called before the release.

Sometimes a member gives up a partition between two operations, because the session may have expired or the release took
too long. Then the ownership (the *hold*) counts as ended at the member's last operation, and no row reports its end. A
generator finds such a hold in the result's ``over``, as ``[key, assignment]``.

A commit may begin before the operation that reports it is called. Its outcome then counts as unknown.
"""

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.config import DEFAULT_FETCH_BYTES
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.client.membership import CommitFailed
from assay.system_under_test.client.traits import select_client_traits
from assay.system_under_test.client.zookeeper_groups.config import ConnectorConfig
from assay.system_under_test.client.zookeeper_groups.connector import (
    ChangeKind,
    Claim,
    ConsumerConnector,
    OwnershipChange,
)
from assay.system_under_test.client.zookeeper_groups.streams import MessageStream
from assay.system_under_test.client.zookeeper_groups.subscription import TopicFilter
from assay.workloads.broker.group_member import SESSION_SECONDS, get_topics
from assay.workloads.broker.group_operations import (
    DRAIN_GROUP,
    CommitPositions,
    FallSilent,
    LeaveGroup,
    MemberSession,
    MemberVerb,
    PollGroup,
)
from assay.workloads.broker.log_client import LogClient
from assay.workloads.broker.log_messages import to_result
from assay.workloads.broker.log_names import describe_error, to_failure, to_outcome
from assay.workloads.broker.log_operations import LARGEST
from assay.workloads.broker.verbs import FETCH_BYTES, fail, ok

CALL_SECONDS: Final = 1.5
POLL_SECONDS: Final = 0.2
CLASSIC: Final = "classic"
"""Client option: whether members rebalance like those of 0.10.2."""
LEAVING_SECONDS: Final = 2.0
"""Maximum seconds that an operation waits for a member's release. The operation must end within its timeout (5 s)."""

ZOOKEEPER: Final = "zookeeper"
TO_TOPIC: Final = "to-topic"
IN_TOPIC: Final = "in-topic"
TO_ZOOKEEPER: Final = "to-zookeeper"
MODES: Final = {
    ZOOKEEPER: ("zookeeper", False),
    TO_TOPIC: ("kafka", True),
    IN_TOPIC: ("kafka", False),
    TO_ZOOKEEPER: ("zookeeper", True),
}
"""``offsets.storage`` and ``dual.commit.enabled``, in the order in which a group migrates there and back."""


class ConnectorMember:
    """A member of one group, and its unreported events. ``assignment_numbers`` yields numbers for its holds."""

    def __init__(
        self, endpoint: Endpoint, group: str, mode: str, runtime: Any, assignment_numbers: Iterator[int]
    ) -> None:
        storage, dual = MODES[mode]
        self.mode = mode
        self._topics = get_topics(endpoint)
        self._commits_when_leaving = group != DRAIN_GROUP  # each reader of the drain's group starts at the beginning
        self._assignment_numbers = assignment_numbers
        self._assignments: dict[int, int] = {}  # numbers by hold (the library's number of an ownership)
        self._hold_by_partition: dict[tuple[str, int], int] = {}  # hold by partition
        self._notes: list[dict[str, Any]] = []  # ownership changes
        self._commits: list[dict[str, Any]] = []
        self._claims: list[dict[str, Any]] = []
        self._ended_between: list[tuple[str, int]] = []  # holds that ended between two operations
        self._reported_counters: Counter[str] = Counter()
        self._stream: MessageStream | None = None
        self._operation_running = asyncio.Event()
        self._operations = 0
        self._release_done = asyncio.Event()
        self._release_done.set()
        config = ConnectorConfig(
            zookeeper=",".join(endpoint.zookeeper),
            bootstrap=endpoint.all,
            group=group,
            # Members share partitions in the order of their ids. With default ids, the newest member would be the last.
            consumer_id=f"{runtime.random.getrandbits(64):016x}",
            session_timeout=SESSION_SECONDS,
            connection_timeout=CALL_SECONDS,
            offsets_storage=storage,
            dual_commit=dual,
            auto_commit=False,
            reset="smallest",
            classic=endpoint.options.get(CLASSIC, False),
            timeout=CALL_SECONDS,
            fetch_bytes=endpoint.options.get(FETCH_BYTES, DEFAULT_FETCH_BYTES),
        )
        self.connector = ConsumerConnector(
            config,
            runtime=runtime,
            on_change=self._on_change,
            on_claim=self._on_claim,
            before_release=self._before_release,
            traits=select_client_traits(endpoint.defects),
        )

    def report_holds_again(self) -> None:
        """Reports all holds again under new numbers; see ``assay.workloads.broker.group_operations``."""
        for partition, position in self.connector.positions.items():
            hold = self._hold_by_partition[partition]
            if self._assignments[hold] not in {note["assignment"] for note in self._notes}:
                self._assignments[hold] = next(self._assignment_numbers)
                self._notes.append(self._make_note("acquire", partition, hold) | {"begin": position, "offset": None})

    def report(self) -> dict[str, Any]:
        """Returns and clears the events since the last call."""
        notes, self._notes = self._notes, []
        commits, self._commits = self._commits, []
        claims, self._claims = self._claims, []
        over, self._ended_between = self._ended_between, []
        counters = Counter(dataclasses.asdict(self.connector.counters))
        unreported, self._reported_counters = counters - self._reported_counters, counters
        return {"ownership": notes, "commits": commits, "claims": claims, "over": over, "effort": unreported}

    @contextlib.asynccontextmanager
    async def operation(self) -> AsyncIterator[None]:
        """Allows releases during the block, and waits at its end until a release that has begun is done."""
        self._operations += 1
        self._operation_running.set()
        try:
            yield
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_SECONDS):
                    await self._release_done.wait()
        finally:
            self._operation_running.clear()

    async def die(self) -> None:
        """Shuts the member down. Its partitions are free afterwards, at the latest after the session timeout."""
        await self.connector.shutdown()

    @property
    def _current_operation(self) -> int | None:
        return self._operations if self._operation_running.is_set() else None

    async def poll(self) -> list[dict[str, Any]]:
        """Returns the new records of each partition. Raises ``ReadFailed``, or ``ConnectionError``."""
        if self._stream is None:
            self._stream = await self._create_stream()
        return [
            {
                "key": f"{chunk.topic}-{chunk.partition}",
                "begin": chunk.begin,
                "records": [to_result(message) for message in chunk.messages],
                "end": min(chunk.end, LARGEST),
                "assignment": self._assignments[chunk.hold],
            }
            for chunk in await self._stream.receive(POLL_SECONDS)
        ]

    async def _create_stream(self) -> MessageStream:
        """Creates one stream for all topics. That needs a filter if there are several topics."""
        if len(self._topics) > 1:
            (stream,) = await self.connector.create_streams_by_filter(TopicFilter("|".join(self._topics), 1))
            return stream
        (topic,) = self._topics
        return (await self.connector.create_streams({topic: 1}))[topic][0]

    async def commit(self) -> None:
        """Commits all positions. Raises ``CommitFailed``.

        If positions change during a failed commit, the positions before and after it are reported.
        """
        before, began_in = self.connector.positions, self._current_operation
        try:
            positions = await self.connector.commit_offsets()
            in_time = began_in is not None and began_in == self._current_operation  # the commit is within one operation
            self._note_commit("ok" if in_time else "info", positions)
        except CommitFailed as error:
            known = to_outcome(error.outcome).value
            for positions in (before, self.connector.positions):
                self._note_commit(known, positions)
            raise

    def _note_commit(self, outcome: str, positions: dict[tuple[str, int], int]) -> None:
        if positions:
            committed = [[f"{topic}-{index}", offset] for (topic, index), offset in positions.items()]
            self._commits.append({"outcome": outcome, "positions": committed})

    async def _before_release(self) -> None:
        await self._operation_running.wait()
        if self.connector.owned:
            self._release_done.clear()
            if self._commits_when_leaving:
                with contextlib.suppress(CommitFailed):
                    await self.commit()

    def _on_claim(self, claim: Claim) -> None:
        shares = [[f"{topic}-{index}", member] for (topic, index), member in claim.shares.items()]
        entry = {"owner": self.connector.consumer_id, "seen": claim.view_zxid, "made": claim.claim_zxid}
        self._claims.append(entry | {"shares": shares})

    def _on_change(self, change: OwnershipChange) -> None:
        partition = change.topic, change.partition
        if change.kind is ChangeKind.ACQUIRED:
            self._assignments[change.hold] = next(self._assignment_numbers)
            self._hold_by_partition[partition] = change.hold
        else:
            self._release_done.set()
            del self._hold_by_partition[partition]
        assignment = self._assignments[change.hold]
        if change.kind is not ChangeKind.ACQUIRED and not self._operation_running.is_set():
            self._notes = [note for note in self._notes if note["assignment"] != assignment]
            self._ended_between.append((f"{change.topic}-{change.partition}", assignment))
            return
        kinds = {ChangeKind.ACQUIRED: "acquire", ChangeKind.RELEASED: "release", ChangeKind.LOST: "lost"}
        note = self._make_note(kinds[change.kind], partition, change.hold)
        if change.kind is ChangeKind.ACQUIRED:
            note |= {"begin": change.offset, "offset": change.offset, "number": None}
        else:
            note["end"] = change.offset
        self._notes.append(note)

    def _make_note(self, kind: str, partition: tuple[str, int], hold: int) -> dict[str, Any]:
        topic, index = partition
        return {
            "kind": kind,
            "key": f"{topic}-{index}",
            "generation": None,
            "owner": self.connector.consumer_id,
            "assignment": self._assignments[hold],
        }


class ConnectorVerb(MemberVerb):
    """An operation of an existing member. If the member is in another mode than requested, it shuts down."""

    hidden: ClassVar[Sequence[str]] = ("fetched",)
    """Kinds of effects that members with a coordinator have, but not members of the old design."""

    async def invoke(self, operation: Operation) -> Completion:
        group, mode = operation.argument["group"], operation.argument.get("mode", ZOOKEEPER)
        member: ConnectorMember | None = self.session.members.get(group)
        if member is None:
            return fail(self.no_member_error)
        if self.f == LeaveGroup.f or member.mode != mode:
            return ok(await self.shut_down(group, member))
        return await self.execute(group, member)

    async def shut_down(self, group: str, member: ConnectorMember) -> dict[str, Any]:
        """Shuts the member down, and returns its last report."""
        async with member.operation():
            if group != DRAIN_GROUP:
                with contextlib.suppress(CommitFailed):
                    await member.commit()
            await member.die()
        del self.session.members[group]
        return member.report()

    async def execute(
        self, group: str, member: ConnectorMember, former_report: Mapping[str, Any] | None = None
    ) -> Completion:
        """Executes the operation. ``former_report``: that of the member that this one replaced; it comes first."""
        async with member.operation():
            completion = await self._run(group, member)
        report = member.report()
        if former_report is not None:
            report = {name: former_report[name] + more for name, more in report.items()}
        return Completion(completion.outcome, (completion.result or {}) | report, completion.error)

    async def _run(self, group: str, member: ConnectorMember) -> Completion:
        try:
            return ok(await self.perform(member))
        except ReadFailed as error:
            await asyncio.sleep(POLL_SECONDS)  # an immediate retry would fail again, thousands of times
            return to_failure(error)
        except ConnectionError as error:
            del self.session.members[group]  # it never reached ZooKeeper
            await member.die()
            return fail(f"no-zookeeper: {error}")
        except CommitFailed as error:
            if error.outcome is Certainty.NOT_DONE:
                return to_failure(error)
            # The outcome is unknown, and so are the effects. The member goes on, as any consumer would.
            return ok({"unknown": describe_error(error)})

    async def perform(self, member: ConnectorMember) -> dict[str, Any] | None:
        """Does the work of the operation. Returns its part of the result, without the member's report."""
        raise NotImplementedError

    @classmethod
    def effects(cls, completed: Completed) -> Iterable[Effect]:
        """Returns the rows of members with a coordinator, except the ``hidden`` ones. Adds a group's ``advance`` and
        ``resume`` (``assay.checkers.groups.offsets``), and its ``claim`` and ``share``
        (``assay.checkers.groups.split_views``).
        """
        group, result = completed.operation.argument["group"], completed.completion.result or {}
        rows = [row for row in super().effects(completed) if row.kind not in cls.hidden]
        for note in result.get("ownership", ()):
            if note["kind"] == "acquire" and note["offset"] is not None and group != DRAIN_GROUP:
                register = f"{group}/{note['key']}"
                rows.append(Effect("resume", register, position=note["begin"], group=group, outcome=Outcome.OK))
        for commit in result.get("commits", ()):
            for key, offset in commit["positions"]:
                outcome = Outcome(commit["outcome"])
                rows.append(Effect("advance", f"{group}/{key}", position=offset, group=group, outcome=outcome))
        if not rows and "ownership" in result:
            rows.append(Effect("idle", group, group=group, outcome=Outcome.OK))
        return [*rows, *_find_claims(result, group)]


class ConnectorPoll(ConnectorVerb, PollGroup):
    """Joins the group in this mode if necessary, and requests new records."""

    async def invoke(self, operation: Operation) -> Completion:
        session, group = self.session, operation.argument["group"]
        mode, former_report = operation.argument.get("mode", ZOOKEEPER), None
        if group in session.members and session.members[group].mode != mode:
            former_report = await self.shut_down(group, session.members[group])
        if group not in session.members:
            session.members[group] = ConnectorMember(
                session.endpoint, group, mode, session.runtime, session.assignment_numbers
            )
        return await self.execute(group, session.members[group], former_report)

    async def perform(self, member: ConnectorMember) -> dict[str, Any] | None:
        return {"reads": await member.poll()}


class ConnectorCommit(ConnectorVerb):
    """Commits all positions of the member."""

    f = CommitPositions.f
    hidden = ("fetched", "start", "seek")

    async def perform(self, member: ConnectorMember) -> dict[str, Any] | None:
        await member.commit()
        return None


class ConnectorLeave(ConnectorVerb):
    """Leaves the group."""

    f = LeaveGroup.f


class ConnectorSilence(ConnectorVerb):
    """Does nothing for some seconds. The member keeps its partitions, and other members wait for it."""

    f = FallSilent.f

    async def invoke(self, operation: Operation) -> Completion:
        await asyncio.sleep(operation.argument["seconds"])
        return ok()


class ConnectorClient(LogClient):
    """Client with members of the old design, and with the operations on logs."""

    holds_sessions = True
    """The client has its own sessions at ZooKeeper, which faults of consumers may expire."""
    verbs = (*LogClient.verbs, ConnectorPoll, ConnectorCommit, ConnectorLeave, ConnectorSilence)
    session_type = MemberSession


def _find_claims(result: dict[str, Any], group: str) -> list[Effect]:
    return [
        Effect("claim" if member == claim["owner"] else "share", key, owner=member, version=claim["seen"],
               value=claim["made"], group=group, outcome=Outcome.OK)
        for claim in result.get("claims", ()) for key, member in claim["shares"]
    ]  # fmt: skip
