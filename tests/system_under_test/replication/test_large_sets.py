"""Compressed sets that hold much: they are limited, and other requests are answered while a broker works on them."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from assay.system_under_test.config import TopicConfig
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.network.server import Server
from assay.system_under_test.protocol.api import APIS
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from assay.system_under_test.protocol.internal import ReplicaFetchedPartition
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.protocol.schema import read_records
from assay.system_under_test.records import message_set, wrapper
from assay.system_under_test.records.compression import GZIP, LZ4, compress, decompress
from assay.system_under_test.records.message import Message, encode
from assay.system_under_test.records.produced import ValidatedSet, stamp, validate_in_steps, validate_small
from assay.system_under_test.records.steps import SMALL_BYTES, SMALL_MESSAGES, STEP_BYTES, Turns, run
from assay.system_under_test.records.wrapper import MAX_EXPANDED, wrap
from assay.system_under_test.replication import fetch as fetching
from assay.system_under_test.replication import produce as producing
from assay.system_under_test.replication.follower import FollowerTerm
from assay.system_under_test.replication.replica import PartitionError
from assay.system_under_test.replication.traits import CORRECT

from helpers.nightly import by_night
from helpers.producing import validated
from helpers.sim_brokers import Brokers, brokers, simulate

pytestmark = pytest.mark.slow

ONE_BROKER = Broker(partitions=1, replication=1, min_insync=1)
MANY = 60_000
NO_WAIT = RequestContext(0, 2, 1, "client", "peer")
STAMP = 1_700_000_000_000


def many(count: int, magic: int = 1, codec: int = GZIP) -> bytes:
    """A wrapper of empty messages, in whose place a producer of format 0 leaves all offsets 0."""
    inner = b"".join(
        encode(Message(i if magic else 0, magic, 0, STAMP if magic else None, None, None)) for i in range(count)
    )
    value = compress(codec, inner, magic)
    return encode(Message(count - 1, magic, codec, STAMP if magic else None, None, value))


def large(size: int, magic: int = 1) -> bytes:
    """A wrapper of one message with so many bytes."""
    inner = encode(Message(0, magic, 0, STAMP if magic else None, None, bytes(size - (34 if magic else 26))))
    return encode(Message(0, magic, LZ4, STAMP if magic else None, None, compress(LZ4, inner, magic)))


def request(*sets: bytes, acks: int = 1) -> ProduceRequest:
    parts = [ProducePartition(partition=0, records=records) for records in sets]
    return ProduceRequest(acks=acks, timeout_ms=1000, topics=[ProduceTopic(topic="orders", partitions=parts)])


async def send(cluster: Brokers, *sets: bytes, version: int = 2, acks: int = -1) -> list[ErrorCode]:
    connection = await Connection.open((await cluster.leader()).address, 9092, 1.0)
    try:
        response = await connection.call(request(*sets, acks=acks), version, 30.0)
        return [ErrorCode(part.error_code) for part in response.topics[0].partitions]
    finally:
        await connection.close()


async def read_old(cluster: Brokers, offset: int) -> bytes:
    """Fetches by version 0, for which messages are converted to format 0."""
    connection = await Connection.open((await cluster.leader()).address, 9092, 1.0)
    wanted = [FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, offset=offset, max_bytes=1 << 20)])]
    try:
        response = await connection.call(
            FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=wanted), 0, 30.0
        )
        return read_records(response.topics[0].partitions[0].records)
    finally:
        await connection.close()


class Leader:
    """A partition with a leader's term, as far as a produce request needs them."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.append_lock = asyncio.Lock()
        self.log = SimpleNamespace(now_ms=lambda: STAMP, end_offset=0)
        self.appended: list[bytes] = []
        self.counts: list[int] = []
        """The number of messages in each set."""
        self.leads = True

    def require_leader(self) -> Leader:
        if not self.leads:
            raise PartitionError(ErrorCode.NOT_LEADER_FOR_PARTITION)
        return self

    def append(self, records: ValidatedSet, *, wait_for_all: bool) -> tuple[int, int, int]:
        first = self.log.end_offset
        self.appended.append(stamp(records, first)[0])
        self.counts.append(records.count)
        self.log.end_offset += records.count
        return first, self.log.end_offset - 1, -1

    @property
    def manager(self) -> Any:
        return SimpleNamespace(get=lambda topic, number: self, turns=Turns())


# -- other requests meanwhile --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "magic", "repeats"), [(250_000, 1, 1), (100_000, 0, 1), (1000, 0, 100)])
def test_another_connection_is_answered_while_a_large_set_is_processed(count: int, magic: int, repeats: int) -> None:
    data = many(count, magic) * repeats

    async def check() -> None:
        leader, began = Leader(TopicConfig()), asyncio.Event()
        answers, answers_before_append = 0, -1

        def get(topic: str, number: int) -> Leader:
            began.set()
            return leader

        def append(records: ValidatedSet, *, wait_for_all: bool) -> tuple[int, int, int]:
            nonlocal answers_before_append
            answers_before_append = answers
            return 0, records.count - 1, -1

        async def metadata(asked: MetadataRequest, context: RequestContext) -> MetadataResponse:
            return MetadataResponse(brokers=[], topics=[], cluster_id=None)

        manager = leader.manager
        manager.get = get
        leader.append = append  # type: ignore[method-assign]
        server = Server({0: partial(producing.produce, manager), 3: metadata}, APIS, None)
        await server.start("127.0.0.1", 0)
        slow, other = [await Connection.open("127.0.0.1", server.port, 5.0) for _ in range(2)]
        pending = asyncio.ensure_future(slow.call(request(data), 2, 60.0))
        await began.wait()
        while not pending.done():
            await other.call(MetadataRequest(topics=[]), 1, 60.0)
            answers += 1
        assert (await pending).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert answers_before_append >= 1
        for connection in (slow, other):
            await connection.close()
        await server.close()

    asyncio.run(check())


def test_a_follower_appends_compressed_sets_in_steps() -> None:
    appended: list[bytes] = []
    turns = 0
    data = stamp(validated(large(STEP_BYTES) * 6 + many(10)), 0)[0]

    def append(records: bytes, max_expanded: int) -> tuple[int, int]:
        found = message_set.check(records, log.end_offset, max_expanded=max_expanded)
        assert found.expanded < 2 * STEP_BYTES
        appended.append(records[: found.size])
        log.end_offset = found.next_offset
        return found.size, found.expanded

    log: Any = SimpleNamespace(
        end_offset=0, append_some_replicated=append, config=SimpleNamespace(compacted=False)
    )  # fmt: skip

    async def check() -> None:
        nonlocal turns
        replica: Any = SimpleNamespace(
            key="orders-0", log=log, high_watermark=0, traits=CORRECT, environment=SimpleNamespace(broker_id=2),
            schedule_flush=lambda: None, forget_epochs_ahead=lambda: None,
        )  # fmt: skip
        term = FollowerTerm(replica, SimpleNamespace(leader_epoch=2, controller_epoch=1, leader=1, isr=[1, 2], elr=[]))  # type: ignore[arg-type]
        answer = ReplicaFetchedPartition(
            topic="orders", partition=0, error_code=0, high_watermark=16, log_start=0, records=data
        )
        applying = asyncio.ensure_future(term.apply_fetched(answer, now=100.0))
        while not applying.done():
            await asyncio.sleep(0)
            turns += 1
        await applying
        assert replica.high_watermark == 16

    asyncio.run(check())
    assert b"".join(appended) == data
    assert len(appended) == 7
    assert turns >= 7, "also after the last entry, because other partitions may follow"


def test_work_of_a_single_step_is_done_after_other_tasks_have_run() -> None:
    """Many requests, each with work of one step, never keep another task waiting for more than one of them."""

    async def check() -> None:
        turns, done = Turns(), 0
        seen: list[int] = []

        def work() -> Any:
            nonlocal done
            yield
            done += 1
            return done

        async def watch() -> None:
            while done < 50:
                seen.append(done)
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        await asyncio.gather(*(turns.run(work()) for _ in range(50)))
        await watching
        assert set(range(50)) <= set(seen)

    asyncio.run(check())


async def append_beside_large_sets(version: str, number: int, magic: int) -> tuple[int, list[list[int]]]:
    """Sends three large sets to partition 0, and then a small one to the partition ``number``.

    Returns how often other tasks ran before the small one was answered, and the partitions' counts of messages by set.
    """
    leaders = [Leader(TopicConfig(message_format_version=version)) for _ in range(2)]
    manager: Any = SimpleNamespace(get=lambda topic, number: leaders[number], turns=Turns())

    async def produce(data: bytes, number: int) -> None:
        parts = [ProducePartition(partition=number, records=data)]
        asked = ProduceRequest(acks=1, timeout_ms=1000, topics=[ProduceTopic(topic="orders", partitions=parts)])
        answer = await producing.produce(manager, asked, NO_WAIT)
        assert answer is not None
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    large_ones = [asyncio.ensure_future(produce(many(MANY, magic), 0)) for _ in range(3)]
    for _ in range(4):
        await asyncio.sleep(0)
    small = asyncio.ensure_future(produce(many(3, magic), number))
    steps = 0
    while not small.done():
        await asyncio.sleep(0)
        steps += 1
    await small
    assert not all(one.done() for one in large_ones)
    await asyncio.gather(*large_ones)
    return steps, [leader.counts for leader in leaders]


@pytest.mark.parametrize("version", ["0.9.0", pytest.param("0.10.2", marks=pytest.mark.long)])
@pytest.mark.parametrize("magic", [by_night(0), 1])
@pytest.mark.parametrize("number", [0, 1], ids=["the same partition", "another partition"])
def test_a_small_set_waits_for_no_large_ones(version: str, number: int, magic: int) -> None:
    """With a check, a conversion and new offsets, its work takes three steps."""
    steps, appended = asyncio.run(append_beside_large_sets(version, number, magic))
    assert steps <= 12
    assert [sorted(counts) for counts in appended] == ([[3, *[MANY] * 3], []] if number == 0 else [[MANY] * 3, [3]])


def test_a_small_set_waits_while_a_large_one_is_numbered_but_not_for_those_that_wait_for_a_turn() -> None:
    """No one holds a partition's lock while waiting for a turn, so the lock is free between two large sets."""

    async def check() -> None:
        leader = Leader(TopicConfig(message_format_version="0.9.0"))
        manager = leader.manager
        large_ones = [
            asyncio.ensure_future(producing.produce(manager, request(many(MANY, magic=0)), NO_WAIT))
            for _ in range(3)
        ]  # fmt: skip
        while not leader.append_lock.locked():  # noqa: ASYNC110 - a lock has no event
            await asyncio.sleep(0)
        assert not any(one.done() for one in large_ones)
        await producing.produce(manager, request(many(3, magic=0)), NO_WAIT)
        assert leader.counts == [MANY, 3]
        await asyncio.gather(*large_ones)

    asyncio.run(check())


def test_a_lock_is_free_while_its_next_holder_waits_for_a_turn() -> None:
    async def check() -> None:
        leader = Leader(TopicConfig(message_format_version="0.9.0"))
        manager = leader.manager
        producer = asyncio.ensure_future(producing.produce(manager, request(many(MANY, magic=0)), NO_WAIT))
        await asyncio.sleep(0)
        async with manager.turns.take():  # the check is done before, because it came first
            for _ in range(100):
                await asyncio.sleep(0)
            assert not leader.append_lock.locked()
            await producing.produce(manager, request(many(3, magic=0)), NO_WAIT)
        assert not producer.done()
        await producer
        assert leader.counts == [3, MANY]

    asyncio.run(check())


@pytest.mark.parametrize("plain", [0, SMALL_MESSAGES])
@pytest.mark.parametrize(("count", "size"), [(3, 0), (SMALL_MESSAGES, 0), (SMALL_MESSAGES + 1, 0), (1, SMALL_BYTES),
                                             (1, SMALL_BYTES + 1)])  # fmt: skip
def test_a_small_set_is_checked_at_once_and_spends_the_same_allowance(count: int, size: int, plain: int) -> None:
    data = (large(size) if size else many(count)) + encode(Message(0, 1, 0, STAMP, None, None)) * plain
    spent, spent_in_steps = wrapper.Allowance(), wrapper.Allowance()
    expected = run(validate_in_steps(data, 1 << 20, spent_in_steps))
    found = validate_small(data, 1 << 20, spent)
    if count <= SMALL_MESSAGES and size <= SMALL_BYTES and not plain:
        assert (found, spent) == (expected, spent_in_steps)
    else:
        assert (found, spent) == (None, wrapper.Allowance())
        assert not expected.is_small


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_set_that_holds_too_much_is_refused_and_the_next_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with brokers(ONE_BROKER, nodes=1) as cluster:
            expected = [ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE]
            half = large(MAX_EXPANDED // 2 + 1)
            assert await send(cluster, half * 2, large(MAX_EXPANDED + 1), half) == expected
            assert [offset for offset, _ in cluster.stored(cluster.nodes[0], "orders-0")] == [0]

    simulate(check)


def test_the_sets_of_one_request_hold_no_more_than_some_of_the_greatest_do() -> None:
    async def check() -> None:
        async with brokers(ONE_BROKER, nodes=1) as cluster:
            codes = await send(cluster, *[large(MAX_EXPANDED)] * 6)
            assert codes == [ErrorCode.NONE] * 4 + [ErrorCode.RECORD_LIST_TOO_LARGE] * 2
            assert await send(cluster, large(MAX_EXPANDED)) == [ErrorCode.NONE]

    simulate(check)


# -- order and races ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, by_night(1)])
def test_sets_of_concurrent_producers_stay_whole_and_in_a_row(magic: int) -> None:
    """Format 0 numbers compressed messages in steps, and no other set may be appended meanwhile."""

    def make(number: int, count: int, codec: int) -> bytes:
        records = [(None, b"%d" % number, STAMP if magic else None)] * count
        plain = message_set.build(records, magic)
        return wrap(message_set.decode(plain), codec) if codec else plain

    sets = [make(number, 40_000 if number % 2 else 3, GZIP if number % 3 else 0) for number in range(9)]

    async def check() -> None:
        system = ONE_BROKER if magic else ONE_BROKER.with_setting("message.format.version", "0.9.0")
        async with brokers(system, nodes=1) as cluster:
            version = 2 if magic else 0
            found = await asyncio.gather(*(send(cluster, data, version=version) for data in sets))
            assert found == [[ErrorCode.NONE]] * len(sets)
            stored = cluster.stored(cluster.nodes[0], "orders-0")
            assert [offset for offset, _ in stored] == list(range(len(stored)))
            values = [value for _, value in stored]
            changes = sum(one != other for one, other in itertools.pairwise(values))
            assert changes == len(sets) - 1
            assert len(values) == sum(40_000 if number % 2 else 3 for number in range(9))

    simulate(check)


def test_a_set_is_numbered_before_its_append_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        leader = Leader(TopicConfig(message_format_version="0.9.0"))
        data = wrap(message_set.decode(message_set.build([(None, b"v", None)] * 20_000, 0)), GZIP)
        manager, opened = leader.manager, 0
        original = decompress

        def counting(*args: Any) -> bytes:
            nonlocal opened
            found = original(*args)  # raises for a small limit, which finds out whether the set is small
            opened += 1
            return found

        monkeypatch.setattr(wrapper, "decompress", counting)
        await asyncio.gather(*(producing.produce(manager, request(data), NO_WAIT) for _ in range(3)))
        assert opened == 6, "each once for the check, once for the numbers"
        offsets = [each.offset for data in leader.appended for each in message_set.decode(data)]
        assert offsets == list(range(60_000))

    asyncio.run(check())


def test_a_leader_that_is_deposed_while_it_converts_appends_nothing() -> None:
    async def check() -> None:
        leader = Leader(TopicConfig())
        answering = asyncio.ensure_future(producing.produce(leader.manager, request(many(100_000, magic=0)), NO_WAIT))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not answering.done()
        leader.leads = False
        answer = await answering
        assert answer is not None
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_FOR_PARTITION
        assert leader.appended == []

    asyncio.run(check())


def test_settings_that_change_while_a_set_is_converted_count_for_its_append() -> None:
    async def check() -> None:
        leader = Leader(TopicConfig())
        answering = asyncio.ensure_future(producing.produce(leader.manager, request(many(100_000, magic=0)), NO_WAIT))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leader.config = TopicConfig(compression_type="lz4")
        await answering
        assert [each.attributes for each in message_set.iterate_entries(leader.appended[0])] == [LZ4]

    asyncio.run(check())


def test_the_work_of_many_requests_is_done_in_turns_with_one_set_in_memory() -> None:
    async def check() -> None:
        turns, inside = Turns(), 0

        def work(data: list[int]) -> Any:
            nonlocal inside
            yield
            inside += 1
            assert inside == 1
            for _ in range(5):
                yield
            inside -= 1
            return len(data)

        assert await asyncio.gather(*(turns.run(work([1] * size)) for size in range(5))) == list(range(5))

        def fail() -> Any:
            yield
            raise LookupError

        with pytest.raises(LookupError):
            await turns.run(fail())
        assert await turns.run(work([1])) == 1

    asyncio.run(check())


# -- old consumers -----------------------------------------------------------------------------------------------------


def test_an_old_consumer_reads_large_sets_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_EXPANDED", 2_000_000)

    async def check() -> None:
        async with brokers(ONE_BROKER, nodes=1) as cluster:
            assert await send(cluster, *[many(30_000)] * 6) == [ErrorCode.NONE] * 6
            offset = answers = 0
            while offset < 180_000:
                data = await read_old(cluster, offset)
                found = message_set.check(data, offset)
                assert (found.problem, found.size) == (None, len(data))
                assert found.expanded <= 3_000_000
                offset, answers = found.next_offset, answers + 1
            assert answers == 3

    simulate(check)


def test_old_consumers_get_records_of_some_partitions_only_if_all_together_hold_too_much() -> None:
    stored = stamp(validated(large(1_000_000)), 0)[0]

    async def check(limit: int) -> list[int]:
        parts = [SimpleNamespace(records=stored, partition=index) for index in range(5)]
        wanted = [
            FetchTopic(
                topic="orders",
                partitions=[FetchPartition(partition=i, offset=0, max_bytes=10_000_000) for i in range(5)],
            )
        ]
        response: Any = SimpleNamespace(topics=[SimpleNamespace(partitions=parts)])
        manager: Any = SimpleNamespace(turns=Turns())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fetching, "MAX_CONVERTED_EXPANDED", limit)
            await fetching._convert(manager, wanted, response)
        return [len(message_set.decode(part.records)) for part in parts]

    assert asyncio.run(check(10_000_000)) == [1] * 5
    assert asyncio.run(check(2_000_000)) == [1, 1, 0, 0, 0]
    assert asyncio.run(check(2_000_001)) == [1, 1, 1, 0, 0]


# -- whole clusters ----------------------------------------------------------------------------------------------------


def test_the_greatest_sets_are_replicated_and_survive_a_restart() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            sets = [many(100_000), many(50_000, magic=0), large(MAX_EXPANDED)]
            assert await send(cluster, *sets) == [ErrorCode.NONE] * 3
            for node in cluster.nodes:
                await node.kill()
                await node.start()
            await asyncio.sleep(20)
            assert await send(cluster, many(10)) == [ErrorCode.NONE]
            for node in cluster.nodes:
                assert [offset for offset, _ in cluster.stored(node, "orders-0")] == list(range(150_011))

    simulate(check)
