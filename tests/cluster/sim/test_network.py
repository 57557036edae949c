"""The simulated network: what TCP promises, and what cut links, kills and stops do to connections."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.node import Flow, Traffic
from assay.cluster.sim.loop import SimLoop
from assay.cluster.sim.packet_shaping import HEADER
from assay.cluster.sim.process import Process

from helpers.examples import some_of

PORT = 9092


@dataclass
class Inbox:
    """Data that a server received, with times, and how its connections ended."""

    data: bytearray = field(default_factory=bytearray)
    times: list[float] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    answer: bool = False

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while data := await reader.read(65536):
                self.data += data
                self.times.append(asyncio.get_running_loop().time())
                if self.answer:
                    writer.write(data)
            self.endings.append("eof")
        except OSError as error:
            self.endings.append(type(error).__name__)
        finally:
            writer.close()


class World:
    """Two machines, ``a`` and ``b``, each with a process; ``b`` listens."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.network = loop.network
        self.a = Process(loop, self.network.add_host("a", "198.18.0.2"), "a", "a.1")
        self.b = Process(loop, self.network.add_host("b", "198.18.0.3"), "b", "b.1")
        self.inbox = Inbox()
        self.writers: list[asyncio.StreamWriter] = []
        """Kept, because from Python 3.12 on a writer that is no longer referred to closes its connection."""

    async def listen(self) -> None:
        await self.b.spawn(asyncio.start_server(self.inbox.accept, "0.0.0.0", PORT), "listen")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.a.spawn(asyncio.open_connection("b", PORT), "connect")
        self.writers.append(writer)
        return reader, writer

    def cut(self, source: Process, target: Process) -> None:
        self.network.drop(source.host, target.host)

    def heal(self) -> None:
        self.network.heal(self.a.host)
        self.network.heal(self.b.host)


def simulate(test: Callable[[World], Coroutine[Any, Any, None]], seed: int = 0, listen: bool = True) -> None:
    async def main() -> None:
        world = World()
        if listen:
            await world.listen()
        await test(world)
        world.a.kill()
        world.b.kill()

    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        runner.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


def test_names_of_both_ends_and_half_close() -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect()
        assert writer.get_extra_info("peername") == ("198.18.0.3", PORT)
        world.inbox.answer = True
        writer.write(b"question")
        writer.write_eof()
        assert await reader.read() == b"question"
        assert world.inbox.endings == ["eof"]
        with pytest.raises(RuntimeError):
            writer.write(b"more")
        writer.close()
        await writer.wait_closed()

    simulate(test)


def test_what_is_written_to_a_closed_connection_is_dropped_as_by_a_real_transport() -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        writer.close()
        writer.write(b"too late")
        await writer.wait_closed()

    simulate(test)


@settings(max_examples=some_of(30), deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=20), st.floats(0, 0.002)), max_size=30), st.integers(0, 99))
def test_bytes_arrive_once_and_in_order(writes: list[tuple[bytes, float]], seed: int) -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        for data, pause in writes:
            writer.write(data)
            if pause > 0.001:
                await asyncio.sleep(pause)
        writer.close()
        await asyncio.sleep(1)
        assert bytes(world.inbox.data) == b"".join(data for data, _ in writes)
        assert world.inbox.endings == ["eof"]

    simulate(test, seed)


@settings(max_examples=some_of(30), deadline=None)
@given(st.integers(0, 10_000), st.lists(st.tuples(st.floats(0, 4), st.floats(0.01, 3), st.integers(0, 2)), max_size=4))
def test_bytes_survive_any_cuts_that_heal(seed: int, cuts: list[tuple[float, float, int]]) -> None:
    """Cuts of at most 3 s each, forth, back or both, under traffic both ways: nothing lost, doubled or swapped."""

    async def test(world: World) -> None:
        world.inbox.answer = True
        reader, writer = await world.connect()

        async def cut(start: float, length: float, way: int) -> None:
            await asyncio.sleep(start)
            if way != 0:
                world.cut(world.a, world.b)
            if way != 1:
                world.cut(world.b, world.a)
            await asyncio.sleep(length)
            world.heal()

        async with asyncio.TaskGroup() as group:
            for each in cuts:
                group.create_task(cut(*each))
            for number in range(300):
                writer.write(b"%04d" % number)
                await asyncio.sleep(0.02)
        expected = b"".join(b"%04d" % number for number in range(300))
        assert await asyncio.wait_for(reader.readexactly(len(expected)), 20) == expected
        assert bytes(world.inbox.data) == expected
        writer.close()

    simulate(test, seed)


def test_connections_overtake_each_other() -> None:
    async def test(world: World) -> None:
        writers = [(await world.connect())[1] for _ in range(20)]
        for number, writer in enumerate(writers):
            writer.write(bytes([number]))
        await asyncio.sleep(1)
        assert sorted(world.inbox.data) == list(range(20))
        assert list(world.inbox.data) != list(range(20))
        for writer in writers:
            writer.close()

    simulate(test)


def test_refused_without_a_listener_and_unreachable_without_a_host() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        assert 0 < now() < 0.01
        with pytest.raises(OSError, match="no route") as caught:
            await asyncio.open_connection("198.18.9.9", PORT)
        assert caught.value.errno == errno.EHOSTUNREACH

    simulate(test, listen=False)


def test_who_listens_on_the_loopback_address_is_reached_from_the_same_host_alone() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = True
        server = await world.b.spawn(asyncio.start_server(world.inbox.accept, "127.0.0.1", PORT), "listen")
        assert server.sockets[0].getsockname() == ("127.0.0.1", PORT)
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        reader, writer = await world.b.spawn(asyncio.open_connection("127.0.0.1", PORT), "connect")
        writer.write(b"question")
        assert await reader.readexactly(8) == b"question"
        writer.close()

    simulate(test, listen=False)


def test_a_port_has_one_listener() -> None:
    async def test(world: World) -> None:
        with pytest.raises(OSError, match="in use"):
            await world.listen()

    simulate(test)


def test_a_slow_reader_stops_its_writer_and_lets_it_go_on() -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect()
        for _ in range(1000):
            if not world.inbox.writers:
                await asyncio.sleep(0.001)
        far = world.inbox.writers[0]
        far.transport.pause_reading()  # type: ignore[attr-defined]
        sent = 0

        async def pour() -> None:
            nonlocal sent
            while True:
                writer.write(bytes(10_000))
                sent += 10_000
                await writer.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pour(), 5)
        assert 300_000 < sent < 400_000
        assert not world.inbox.data
        far.transport.resume_reading()  # type: ignore[attr-defined]
        await writer.drain()
        await asyncio.sleep(1)
        assert len(world.inbox.data) == sent
        writer.close()
        assert not await reader.read()

    simulate(test)


def test_an_abort_and_a_kill_reset_the_peer() -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        writer.transport.abort()
        await asyncio.sleep(1)
        assert world.inbox.endings == ["ConnectionResetError"]
        reader, writer = await world.connect()
        await asyncio.sleep(1)
        world.b.kill()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    simulate(test)


def test_what_a_process_wrote_before_its_death_still_arrives() -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        writer.write(b"last words")
        world.a.kill()
        await asyncio.sleep(1)
        assert bytes(world.inbox.data) == b"last words"
        assert world.inbox.endings == ["ConnectionResetError"]

    simulate(test)


def test_what_was_written_before_an_abort_may_arrive_after_what_a_later_connection_brings() -> None:
    """asyncio's ``abort`` closes the socket, and the kernel goes on sending what it has."""

    async def test(world: World) -> None:
        _, former = await world.connect()
        world.cut(world.a, world.b)
        former.write(b"late")
        await asyncio.sleep(3)
        former.transport.abort()
        await asyncio.sleep(0.1)
        world.heal()
        _, later = await world.connect()
        later.write(b"first, ")
        await asyncio.sleep(5)
        assert bytes(world.inbox.data) == b"first, late"
        assert world.inbox.endings == ["ConnectionResetError"]
        later.close()

    simulate(test)


@pytest.mark.parametrize("pause", [0.0, 0.0001, 3.0], ids=["at once", "in flight", "stalled"])
def test_what_was_written_before_an_abort_without_lingering_is_not_sent_again(pause: float) -> None:
    async def test(world: World) -> None:
        _, former = await world.connect()
        world.cut(world.a, world.b)
        former.write(b"late")
        await asyncio.sleep(pause)
        former.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        former.transport.abort()
        await asyncio.sleep(0.1)
        world.heal()
        _, later = await world.connect()
        later.write(b"first, ")
        await asyncio.sleep(100)
        assert bytes(world.inbox.data) == b"first, "
        later.close()

    simulate(test)


def test_without_lingering_what_meets_no_cut_arrives_before_the_reset() -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        writer.write(b"in time")
        await asyncio.sleep(0.1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await asyncio.sleep(1)
        assert bytes(world.inbox.data) == b"in time"
        assert world.inbox.endings == ["ConnectionResetError"]

    simulate(test)


def test_an_abort_drops_what_the_kernel_had_no_room_for() -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        world.cut(world.a, world.b)
        for number in range(40):
            writer.write(bytes(10_000))
            await asyncio.sleep(number % 2 / 10)
        writer.transport.abort()
        await asyncio.sleep(5)
        world.heal()
        await asyncio.sleep(5)
        assert len(world.inbox.data) == 260_000, "what fits into 256 KiB"
        assert world.inbox.endings == ["ConnectionResetError"]

    simulate(test)


def test_a_cut_stalls_and_a_heal_delivers_in_order_after_the_back_off() -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        writer.write(b"1")
        await asyncio.sleep(1)
        world.cut(world.a, world.b)
        for data in (b"2", b"3", b"4"):
            writer.write(data)
            await asyncio.sleep(1)
        assert bytes(world.inbox.data) == b"1"
        assert world.b.host.rules[world.a.host] >= 3
        assert not world.a.host.rules
        healed = now()
        world.heal()
        writer.write(b"5")
        await asyncio.sleep(5)
        assert bytes(world.inbox.data) == b"12345"
        assert 0 < world.inbox.times[-1] - healed < 3
        assert world.inbox.endings == []
        writer.close()

    simulate(test)


def test_a_cut_way_back_starves_the_acknowledgements() -> None:
    """Data still arrives, up to the window; the sender gives up like one whose data does not arrive."""

    async def test(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(b"x")
        await asyncio.sleep(1)
        world.cut(world.b, world.a)
        for _ in range(20):
            writer.write(bytes(10_000))
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert 50_000 < len(world.inbox.data) < 80_000
        assert world.a.host.rules[world.b.host] > 3
        with pytest.raises(TimeoutError):
            await reader.read()
        assert 15 < now() < 20
        writer.close()

    simulate(test)


def test_data_that_cannot_arrive_times_out_at_its_sender_and_an_idle_peer_knows_nothing() -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect()
        await asyncio.sleep(1)
        world.cut(world.a, world.b)
        writer.write(b"x")
        with pytest.raises(TimeoutError):
            await reader.read()
        assert 15 < now() < 20
        assert world.inbox.endings == []
        world.heal()
        await asyncio.sleep(20)
        assert world.inbox.endings == []
        world.inbox.writers[0].write(b"anyone there?")
        await asyncio.sleep(1)
        assert world.inbox.endings == ["ConnectionResetError"]
        assert not world.inbox.data
        writer.close()

    simulate(test)


def test_behind_a_cut_link_a_death_goes_unnoticed_until_something_is_sent() -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect()
        await asyncio.sleep(1)
        world.cut(world.b, world.a)
        world.b.kill()
        await asyncio.sleep(30)
        assert not reader.at_eof()
        assert reader.exception() is None
        world.heal()
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()

    simulate(test)


async def three_of_which_the_second_is_rejected(world: World) -> asyncio.StreamReader:
    """Sent so soon after each other that the third is out when the reset for the second comes back."""
    reader, writer = await world.connect()
    await asyncio.sleep(1)
    world.network.add_flow_rule(world.a.host, world.b.host, Flow(PORT, from_server=False, every=2), rejects=True)
    for word in (b"one", b"two", b"three"):
        writer.write(word)
        await asyncio.sleep(0.00001)
    return reader


def test_what_follows_a_rejected_packet_is_not_read_before_it() -> None:
    async def test(world: World) -> None:
        reader = await three_of_which_the_second_is_rejected(world)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await asyncio.sleep(1)
        assert bytes(world.inbox.data) == b"one"
        assert world.inbox.endings == [], "its reader learns nothing"
        world.inbox.writers[0].write(b"anyone there?")
        await asyncio.sleep(1)
        assert world.inbox.endings == ["ConnectionResetError"]

    simulate(test)


def test_where_the_reset_of_a_rejected_packet_is_lost_it_is_sent_again() -> None:
    async def test(world: World) -> None:
        await three_of_which_the_second_is_rejected(world)
        (rule,) = world.b.host.flows
        for _ in range(1000):
            await asyncio.sleep(0 if rule.count else 0.00001)
        world.cut(world.b, world.a)
        await asyncio.sleep(3)
        assert bytes(world.inbox.data) == b"one"
        world.heal()
        await asyncio.sleep(3)
        assert bytes(world.inbox.data) == b"onetwothree"
        assert world.inbox.endings == []

    simulate(test)


@pytest.mark.parametrize("forth", [True, False])
def test_connecting_over_a_cut_link_times_out_or_comes_through_after_the_heal(forth: bool) -> None:
    async def test(world: World) -> None:
        source, target = (world.a, world.b) if forth else (world.b, world.a)
        world.cut(source, target)
        with pytest.raises(TimeoutError):
            await world.connect()
        assert 14 < now() < 17
        assert target.host.rules[source.host] > 2
        attempt = asyncio.ensure_future(world.connect())
        await asyncio.sleep(2)
        world.heal()
        async with asyncio.timeout(10):
            _, writer = await attempt
        writer.close()

    simulate(test)


def test_the_kernel_of_a_stopped_process_accepts_and_buffers() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = True
        _, old = await world.connect()
        await asyncio.sleep(1)
        world.b.stop()
        old.write(b"a")
        reader, writer = await world.connect()
        writer.write(b"b")
        await asyncio.sleep(10)
        world.cut(world.a, world.b)  # what the kernel has, it has
        assert not world.inbox.data
        world.b.resume()
        assert await reader.readexactly(1) == b"b"
        assert sorted(world.inbox.data) == [*b"ab"]
        old.close()
        writer.close()

    simulate(test)


def test_what_a_process_does_in_the_step_that_stops_it_goes_out_at_its_resume() -> None:
    async def test(world: World) -> None:
        async def hold_in_the_middle() -> None:
            _, writer = await asyncio.open_connection("b", PORT)
            writer.write(b"before")
            world.a.stop()
            writer.write(b"after")
            writer.close()

        world.a.spawn(hold_in_the_middle(), "hold")
        await asyncio.sleep(5)
        assert bytes(world.inbox.data) == b"before"
        world.a.resume()
        await asyncio.sleep(1)
        assert bytes(world.inbox.data) == b"beforeafter"
        assert world.inbox.endings == ["eof"]

    simulate(test)


def test_the_harness_is_never_cut_off() -> None:
    async def test(world: World) -> None:
        world.network.drop(world.network.outside, world.b.host)
        world.network.drop(world.b.host, world.network.outside)
        _, writer = await asyncio.open_connection("b", PORT)
        writer.write(b"x")
        await asyncio.sleep(1)
        assert bytes(world.inbox.data) == b"x"
        writer.close()

    simulate(test)


def test_a_cancelled_attempt_leaves_no_connection() -> None:
    async def test(world: World) -> None:
        for moment in range(1, 30):
            task = asyncio.ensure_future(world.connect())
            await asyncio.sleep(moment / 10_000)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()[1].close()
        await asyncio.sleep(1)
        assert all(ending in ("eof", "ConnectionResetError") for ending in world.inbox.endings)
        assert len(world.inbox.endings) == len(world.inbox.writers)

    simulate(test)


TRAFFIC = [Traffic(delay=0.1), Traffic(loss=0.3), Traffic(copies=0.3), Traffic(0.1, 0.3, True), Traffic(rate=3000)]


@given(traffic=st.sampled_from(TRAFFIC), count=st.integers(1, 20))
@settings(max_examples=some_of(40), deadline=None)
def test_what_a_shaped_host_sends_is_late_in_order_and_all_there(traffic: Traffic, count: int) -> None:
    async def main(world: World) -> None:
        _, writer = await world.connect()
        world.network.shape(world.a.host, traffic)
        shaping, sent = world.a.host.shaping, []
        assert shaping is not None
        for number in range(count):
            writer.write(bytes([number]) * 3)
            sent.append(now())
            await asyncio.sleep(0.003)
        world.network.shape(world.a.host, None)
        await asyncio.sleep(10)
        assert bytes(world.inbox.data) == b"".join(bytes([number]) * 3 for number in range(count))
        took = world.inbox.times[0] - sent[0]
        low, high = {0.1: (0.05, 0.1)}.get(traffic.delay, (0.0, 0.0))
        if traffic.loss:
            low, high = 0.2, 6.2
        if traffic.rate:
            low = high = (3 + HEADER) / traffic.rate
        assert low <= took <= high + 0.01
        counts = shaping.counts
        every = {"late": bool((traffic.delay and traffic.late == 1) or traffic.rate)}
        assert all(counts[what] == count for what in every if every[what])
        assert (counts["lost"] > 0) is (traffic.loss > 0)
        assert (counts["doubled"] > 0) is (traffic.copies > 0)
        assert (counts["late"] > 0) is bool(traffic.delay or traffic.rate)

    simulate(main)


def test_only_what_goes_to_the_given_peers_is_shaped() -> None:
    async def main(world: World) -> None:
        _, writer = await world.connect()
        world.network.shape(world.a.host, Traffic(delay=0.5), [world.a.host])
        began = now()
        writer.write(b"x")
        await asyncio.sleep(1)
        assert world.inbox.times[0] - began < 0.01
        world.network.shape(world.a.host, Traffic(delay=0.5), [world.b.host])
        began = now()
        writer.write(b"x")
        await asyncio.sleep(1)
        assert world.inbox.times[1] - began >= 0.25
        assert world.b.host.shaping is None

    simulate(main)
