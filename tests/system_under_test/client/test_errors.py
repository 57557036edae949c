"""An error never says "not done" of a request that was done, and never "done" of one that was not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.client.config import MemberConfig, ProducerConfig
from assay.system_under_test.client.connection import CallError, NotSent, UnknownOutcome
from assay.system_under_test.client.delivery import Delivery, DeliveryState
from assay.system_under_test.client.draft_membership import DraftMembership
from assay.system_under_test.client.errors import (
    OFFSET_COMMIT_NOT_DONE,
    OFFSET_COMMIT_WORTH_REPEATING,
    PRODUCE_NOT_DONE,
    PRODUCE_WORTH_REPEATING,
    Certainty,
    ReadFailed,
    SendFailed,
    SendUnknown,
    classify_error,
)
from assay.system_under_test.client.membership import CommitFailed, Membership, Position
from assay.system_under_test.client.metadata import BrokerNode, Metadata
from assay.system_under_test.client.pool import Address
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.protocol.group_offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from assay.system_under_test.protocol.produce import ProducePartitionResponse, ProduceResponse, ProduceTopicResponse

from helpers.fake_brokers import FakeRuntime
from helpers.sim_brokers import simulate


@pytest.mark.parametrize(
    "code",
    [E.NOT_LEADER_FOR_PARTITION, E.REQUEST_TIMED_OUT, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.UNKNOWN],
)
def test_after_these_it_is_unknown_whether_messages_were_appended(code: E) -> None:
    assert classify_error(code, PRODUCE_NOT_DONE) is Certainty.UNKNOWN


@pytest.mark.parametrize(
    "code",
    [E.REQUEST_TIMED_OUT, E.GROUP_COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR_FOR_GROUP, E.UNKNOWN],
)
def test_after_these_it_is_unknown_whether_offsets_were_committed(code: E) -> None:
    assert classify_error(code, OFFSET_COMMIT_NOT_DONE) is Certainty.UNKNOWN


def test_what_is_tried_again_was_certainly_not_done() -> None:
    assert PRODUCE_WORTH_REPEATING < PRODUCE_NOT_DONE
    assert OFFSET_COMMIT_WORTH_REPEATING < OFFSET_COMMIT_NOT_DONE


@pytest.mark.parametrize("refusals", [PRODUCE_NOT_DONE, OFFSET_COMMIT_NOT_DONE])
def test_every_code_is_judged_and_a_timeout_never_a_failure(refusals: frozenset[E]) -> None:
    assert classify_error(E.NONE, refusals) is Certainty.DONE
    for code in E:
        assert (classify_error(code, refusals) is Certainty.NOT_DONE) == (code in refusals)
    assert not refusals & {E.NONE, E.UNKNOWN, E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION}


@dataclass(frozen=True)
class Step:
    """A try: how it ends for the client, and whether the broker appended."""

    end: str | E
    appends: bool
    seconds: float


def _truthful(end: str | E, appends: bool, seconds: float) -> Step:
    """Returns a step that a broker can do: it appends nothing that it refused or that never reached it."""
    certain = end in ("no leader", "no connection") or end in PRODUCE_NOT_DONE
    return Step(end, not certain and (appends or end is E.NONE), seconds)


steps = st.builds(
    _truthful,
    st.one_of(st.sampled_from(E), st.sampled_from(["no leader", "no connection", "no answer", "says nothing"])),
    st.booleans(),
    st.floats(0.0, 0.5),
)


class Broker:
    """Metadata, pool and connection of a delivery in one."""

    def __init__(self, script: list[Step]) -> None:
        self.script = script
        self.appended = 0
        self.tries = 0
        self.unsure = False

    def next(self) -> Step:
        self.tries += 1
        return self.script.pop(0) if self.script else Step(E.NONE, True, 0.0)

    async def leader(self, topic: str, partition: int, deadline: float) -> BrokerNode:
        self.step = self.next()
        if self.step.end == "no leader":
            raise ReadFailed("as scripted", error=E.LEADER_NOT_AVAILABLE)
        return BrokerNode(1, Address("broker", 9092))

    def forget(self, topic: str, partition: int) -> None:
        pass

    async def get(self, address: Address, timeout: float) -> Broker:
        if self.step.end == "no connection":
            raise NotSent("as scripted")
        return self

    async def call(self, request: Any, version: int, timeout: float) -> ProduceResponse:
        await asyncio.sleep(min(self.step.seconds, timeout))
        self.appended += self.step.appends
        if self.step.end == "no answer" or self.step.seconds >= timeout:
            self.unsure = True
            raise UnknownOutcome("as scripted")
        if self.step.end == "says nothing":
            self.unsure = True
            return ProduceResponse(topics=[])
        self.unsure |= self.step.end not in PRODUCE_NOT_DONE | {E.NONE}
        found = ProducePartitionResponse(partition=0, error_code=E(self.step.end), base_offset=self.appended - 1)
        return ProduceResponse(topics=[ProduceTopicResponse(topic="t", partitions=[found])])


@given(st.lists(steps, max_size=6), st.integers(0, 5), st.booleans(), st.sampled_from([0.05, 0.3, 9.0]))
def test_a_send_is_reported_as_it_was(script: list[Step], retries: int, repeat_unknown: bool, timeout: float) -> None:
    async def main() -> None:
        broker = Broker(list(script))
        config = ProducerConfig(retries=retries, repeat_unknown=repeat_unknown)
        delivery = Delivery(broker, broker, config)  # type: ignore[arg-type]
        try:
            await delivery.deliver("t", 0, b"", asyncio.get_running_loop().time() + timeout, DeliveryState())
        except SendFailed:
            assert broker.appended == 0
        except SendUnknown:
            assert broker.unsure, "it could have known"
        else:
            assert broker.appended >= 1
        assert broker.tries <= retries + 1
        if not repeat_unknown:
            assert broker.appended <= 1

    simulate(main)


def commits() -> st.SearchStrategy[list[tuple[str | E, bool]]]:
    """Draws for each partition the coordinator's answer, and whether it has committed."""

    def truthful(end: str | E, done: bool) -> tuple[str | E, bool]:
        return end, end is E.NONE or (done and end not in OFFSET_COMMIT_NOT_DONE)

    codes = st.one_of(st.sampled_from([E.NONE, E.NOT_COORDINATOR_FOR_GROUP, E.ILLEGAL_GENERATION]), st.sampled_from(E))
    return st.lists(
        st.builds(truthful, st.one_of(codes, st.just("says nothing")), st.booleans()), min_size=1, max_size=4
    )


@given(st.integers(0, 3), st.sampled_from(["answer", "no answer"]), commits())
def test_a_commit_is_reported_as_it_was(not_sent: int, end: str, parts: list[tuple[str | E, bool]]) -> None:
    class Scripted(Membership):
        left = not_sent

        async def _ask(self, request: Any, version: int, left: float, pool: Any = None) -> Any:
            if self.left:
                self.left -= 1
                raise NotSent("as scripted")
            if end == "no answer":
                raise UnknownOutcome("as scripted")
            answered = [
                OffsetCommitPartitionResponse(partition=index, error_code=code)
                for index, (code, _) in enumerate(parts)
                if isinstance(code, E)
            ]
            return OffsetCommitResponse(topics=[OffsetCommitTopicResponse(topic="t", partitions=answered)])

    async def main() -> None:
        membership = Scripted("broker:9092", "g", runtime=FakeRuntime())  # type: ignore[arg-type]
        failure: CommitFailed | None = None
        try:
            await membership.commit({("t", index): Position(5) for index in range(len(parts))})
        except CommitFailed as error:
            failure = error
        if failure is None:
            assert end == "answer"
            assert all(code is E.NONE for code, _ in parts)
            return
        for (_, index), known in failure.partitions.items():
            code, done = parts[index]
            if known is Certainty.DONE:
                assert done
            elif known is Certainty.NOT_DONE:
                assert not done
                assert end == "answer"
                assert code in OFFSET_COMMIT_NOT_DONE
        alike = set(failure.partitions.values()) == {Certainty.NOT_DONE}
        assert failure.outcome is (Certainty.NOT_DONE if alike else Certainty.UNKNOWN)

    simulate(main)


def membership_of(script: Sequence[E | CallError], repeats: bool, draft: bool = False) -> Any:
    """Returns a membership whose commit attempts end so, the last end repeatedly; ``tries`` counts them."""
    base: Any = DraftMembership if draft else Membership

    class Scripted(base):  # type: ignore[misc]
        tries = 0

        async def _ask(self, request: Any, version: int, left: float, pool: Any = None) -> Any:
            step = script[min(self.tries, len(script) - 1)]
            self.tries += 1
            if isinstance(step, CallError):
                raise step
            answered = [OffsetCommitPartitionResponse(partition=0, error_code=step)]
            return OffsetCommitResponse(topics=[OffsetCommitTopicResponse(topic="t", partitions=answered)])

    if draft:
        return Scripted("broker:9092", "g", ["t"], runtime=FakeRuntime())
    return Scripted("broker:9092", "g", config=MemberConfig(repeat_unknown=repeats), runtime=FakeRuntime())


LOADING, ABSENT, ELSEWHERE = (
    E.GROUP_LOAD_IN_PROGRESS,
    E.GROUP_COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR_FOR_GROUP,
)
EVER = 5.0
"""Seconds of a commit's whole time, by default."""


@pytest.mark.parametrize(
    ("script", "repeats", "draft", "tries", "outcome", "code"),
    [
        ([LOADING, LOADING, E.NONE], False, False, 3, None, None),
        ([LOADING, LOADING, E.NONE], False, True, 3, None, None),
        ([LOADING, ABSENT, ELSEWHERE, UnknownOutcome("it broke"), E.NONE], True, False, 5, None, None),
        ([ABSENT], False, False, 1, Certainty.UNKNOWN, ABSENT),
        ([LOADING, ELSEWHERE], False, True, 2, Certainty.UNKNOWN, ELSEWHERE),
        ([UnknownOutcome("it broke")], False, False, 1, Certainty.UNKNOWN, None),
        ([LOADING, E.UNKNOWN_MEMBER_ID], True, False, 2, Certainty.NOT_DONE, E.UNKNOWN_MEMBER_ID),
        ([ELSEWHERE, E.UNKNOWN_MEMBER_ID], True, False, 2, Certainty.UNKNOWN, E.UNKNOWN_MEMBER_ID),
        ([ELSEWHERE, LOADING], True, False, None, Certainty.UNKNOWN, LOADING),
        ([LOADING], False, False, None, Certainty.NOT_DONE, LOADING),
        ([ABSENT], True, False, None, Certainty.UNKNOWN, ABSENT),
        ([UnknownOutcome("it broke"), NotSent("none is there")], True, False, None, Certainty.UNKNOWN, None),
    ],
)
def test_a_commit_is_tried_again_while_it_may_succeed_and_says_what_all_tries_came_to(
    script: Sequence[E | CallError],
    repeats: bool,
    draft: bool,
    tries: int | None,
    outcome: Certainty | None,
    code: E | None,
) -> None:
    """None for ``tries``: as many as there is time for."""

    async def main() -> None:
        membership = membership_of(script, repeats, draft)
        commit = membership.commit({("t", 0): Position(5)})
        if outcome is None:
            await commit
        else:
            with pytest.raises(CommitFailed) as failed:
                await commit
            assert (failed.value.outcome, failed.value.error) == (outcome, code)
            assert failed.value.partitions == {("t", 0): outcome}
        took = asyncio.get_running_loop().time()
        if tries is None:
            assert EVER - 0.2 < took <= EVER
        else:
            assert membership.tries == tries
            assert took < 1.0

    simulate(main)


class Slow:
    """A connection is there after 0.8 s, and no answer ever comes."""

    async def get(self, address: Address, timeout: float) -> Slow:
        await asyncio.sleep(min(0.8, timeout))
        if timeout < 0.8:
            raise NotSent("as scripted")
        return self

    async def call(self, request: Any, version: int, timeout: float) -> Any:
        await asyncio.sleep(timeout)
        raise UnknownOutcome("as scripted")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("looks_up", ["metadata", "coordinator"])
def test_a_look_up_ends_in_its_time_also_where_connecting_takes_most_of_it(looks_up: str) -> None:
    async def main() -> None:
        slow, runtime, loop = Slow(), FakeRuntime(), asyncio.get_running_loop()
        member = Membership("broker:9092", "g", config=MemberConfig(timeout=1.0), runtime=runtime)  # type: ignore[arg-type]
        member._pool = slow  # type: ignore[assignment]
        metadata = Metadata("broker:9092", slow, runtime.random)  # type: ignore[arg-type]
        look = metadata.describe(None, 1.0) if looks_up == "metadata" else member.committed([("t", 0)])
        with pytest.raises(ReadFailed):
            await look
        assert loop.time() < 1.001

    simulate(main)
