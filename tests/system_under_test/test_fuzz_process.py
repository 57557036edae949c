"""Thousands of hostile requests to a real broker process, next to a client that works all the time.

The broker neither ends nor errs nor stands still. Its memory stays as it was after the first requests. Each connection
costs one line of the log at most, with any bytes. The honest client reads back all that it sent and nothing else. A
failure names the seed and, if the log identifies the connection, the attacks sent on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import re
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.schema import read_records
from assay.system_under_test.records import message_set

from helpers.broker_process import MB, Process, fetch, produce, running_broker, until
from helpers.hostile_requests import VERSIONS, Attack, Stranger

pytestmark = pytest.mark.slow

SEED = 1
WARM_UP = 5_000
"""Attacks after which everything that is made at first use has been made."""
ATTACKERS = 40
PATIENCE = 0.02
"""Seconds for an answer; what comes next comes on the heels of half a request, or of one that waits."""
HANGS = 10.0
"""Seconds without an answer that no honest client should see on any machine."""
GROWTH = 8 * MB
"""Growth of resident memory allowed after the warm-up, for an allocator's fragments.

For each of the nightly run's attacks it is a hundred bytes. Fewer attacks show that no attack keeps some kilobytes.
"""
LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z [A-Z]+ [\w.]+ .{0,1000}")
PEER = re.compile(r"127\.0\.0\.1:(\d+)")


@dataclass
class Record:
    """Record of the attackers: the number of connections by port, and the last connections' attacks."""

    kinds: Counter[str] = field(default_factory=Counter)
    ports: Counter[str] = field(default_factory=Counter)
    last: deque[tuple[str, list[Attack]]] = field(default_factory=lambda: deque(maxlen=2_000))

    def sent_from(self, line: str) -> str:
        """The attacks of the connection that a line of the log names, for a reader who looks for the cause."""
        found = PEER.search(line)
        sent = next((attacks for port, attacks in reversed(self.last) if found and port == found[1]), [])
        return "\n".join(f"{attack.kind}: {attack.data[:2_000].hex()}" for attack in sent)


async def attack(port: int, attacks: Iterator[Attack], record: Record, seed: int) -> None:
    """Connection after connection. Answers are waited for, or not, and some leave without a word."""
    rng = random.Random(seed)
    for first in attacks:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        own, sent = str(writer.get_extra_info("sockname")[1]), list[Attack]()
        record.ports[own] += 1
        record.last.append((own, sent))
        with contextlib.suppress(ConnectionError):
            for each in itertools.chain([first], itertools.islice(attacks, rng.randrange(8))):
                sent.append(each)
                record.kinds[each.kind] += 1
                writer.write(each.data)
                if rng.random() < 0.2:
                    continue  # and the next at once
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        if not await reader.read(65_536):
                            break
        if rng.random() < 0.3 and not writer.is_closing():  # a reset in place of an end
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def work(port: int, stop: asyncio.Event) -> list[bytes]:
    """Sends one message after the other, and reads each back; what it sent."""
    producer, consumer = [await Connection.open("127.0.0.1", port, 5.0) for _ in range(2)]
    sent: list[bytes] = []
    while not stop.is_set():
        value = b"honest %d" % len(sent)
        answer = (await producer.call(produce(value), 2, HANGS)).topics[0].partitions[0]
        assert answer.error_code == 0
        sent.append(value)
        fetched = (await consumer.call(fetch(answer.base_offset), 3, HANGS)).topics[0].partitions[0]
        assert fetched.error_code == 0
        assert [m.value for m in message_set.decode(read_records(fetched.records))] == [value]
        await asyncio.sleep(0.01)
    offset, read = 1, list[bytes | None]()  # the topic's first message was there before
    while offset <= len(sent):
        fetched = (await consumer.call(fetch(offset), 3, HANGS)).topics[0].partitions[0]
        messages = message_set.decode(read_records(fetched.records))
        read += [message.value for message in messages]
        offset = messages[-1].offset + 1
    assert read == sent, "all of it, in order, and nothing of strangers"
    for connection in (producer, consumer):
        await connection.close()
    return sent


@pytest.mark.parametrize("seed", [SEED])
@pytest.mark.long
@pytest.mark.parametrize("count", [100_000])
def test_fuzzed_requests_do_no_harm(count: int, seed: int, tmp_path: Path) -> None:
    async def check(process: Process) -> None:
        files = process.files()
        attacks, record, stop = Stranger(seed, []).attacks(count), Record(), asyncio.Event()
        honest = asyncio.create_task(work(process.port, stop))

        async def send(some: int) -> None:
            these = itertools.islice(attacks, some)
            await asyncio.gather(*(attack(process.port, these, record, seed + number) for number in range(ATTACKERS)))
            assert process.process.poll() is None, "the broker has ended"
            assert not honest.done(), repr(honest.exception())

        await send(WARM_UP)
        warm = process.memory()
        await send(count - WARM_UP)
        stop.set()
        assert len(await honest) > count // 400
        assert record.kinds.total() == count
        assert {f"hostile {api.name} {version}" for api, version in VERSIONS} <= set(record.kinds)

        async def closed() -> bool:
            return process.files() <= files + 5

        await until(closed, "all connections of strangers are gone", 90)
        assert process.memory() - warm < GROWTH
        lines = process.log.read_text().splitlines()
        wrong = [line for line in lines if not LINE.fullmatch(line) or " ERROR " in line]
        assert not wrong, f"{wrong[0][:2_000]}\n{record.sent_from(wrong[0])}"
        said = Counter(port for line in lines for port in PEER.findall(line)[:1])
        del said[str(process.port)]
        assert not {port: count for port, count in said.items() if count > record.ports[port]}

    with running_broker(tmp_path) as process:
        try:
            asyncio.run(check(process))
        except BaseException:
            print(f"seed {seed}; the broker's last words:\n{process.log.read_text()[-4_000:]}")
            raise
