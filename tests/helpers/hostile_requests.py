"""Hostile requests: frames from a seed. A broker must carry out none of them.

There are four kinds:

- noise
- a valid frame that was damaged
- a valid header before the body of another request
- a well-formed request of hostile values, made field by field from the tables of the protocol

The values avoid legitimate requests. Records for a known topic always have a wrong CRC. No known topic is deleted,
changed or grown, no topic can be placed, and no live broker is shut down. No broker epoch or controller epoch is real.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from assay.system_under_test.protocol.api import APIS, Api
from assay.system_under_test.protocol.header import encode_request
from assay.system_under_test.protocol.internal import INTERNAL_APIS
from assay.system_under_test.protocol.schema import Array, Blob, Fixed, RecordsType, Text, WireType, read_table
from assay.system_under_test.records import message_set

KNOWN_TOPIC = "orders"
ALL_APIS = {**APIS, **INTERNAL_APIS}
VERSIONS = [(api, version) for api in ALL_APIS.values() for version in range(api.min_version, api.max_version + 1)]
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
WORDS = [struct.pack(">i", n) for n in (0, 1, -1, -2, 2**31 - 1, -(2**31), 0x7FFF, 0xFFFF, 2**24, 100 * 2**20)]
TEXTS = ("", "nothing", "../../../tmp/evil", "a\0b", "\u2603" * 50, ".", "..", "-0", "orders-0", "x" * 249)
UNPLACEABLE = (0, -1, 99, 2**31 - 1, -(2**31))
"""Broker ids of no one."""


@dataclass(frozen=True)
class Attack:
    """Bytes to be sent, and of what kind they are (a request's name and version where they are meant as one)."""

    kind: str
    data: bytes


class Stranger:
    """Makes attacks. ``broker_epochs`` are the real registrations, which it never names."""

    def __init__(self, seed: int, broker_epochs: Collection[int]) -> None:
        self._random = random.Random(seed)
        self._broker_epochs = frozenset(broker_epochs)
        self._records = [
            message_set.build([(b"k", bytes([n]) * n, 1_700_000_000_000 + n)], magic=n % 2) for n in (0, 1, 20, 101)
        ]

    def attacks(self, count: int) -> Iterator[Attack]:
        """Every request in every version comes in turn; which kind of attack it is, is chance."""
        for number in range(count):
            api, version = VERSIONS[number % len(VERSIONS)]
            chance = self._random.random()
            if chance < 0.15:
                yield Attack("noise", self._noise())
            elif chance < 0.45:
                yield Attack(f"damaged {api.name} {version}", self._damaged(self.hostile(api, version)))
            elif chance < 0.6:
                yield Attack(f"foreign {api.name} {version}", self._foreign(api, version))
            else:
                yield Attack(f"hostile {api.name} {version}", self.hostile(api, version))

    def _noise(self) -> bytes:
        data = self._random.randbytes(self._random.choice((1, 3, 4, 12, 100, 2_000)))
        return data if self._random.random() < 0.3 else struct.pack(">i", len(data)) + data

    def _damaged(self, frame: bytes) -> bytes:
        rng, data = self._random, bytearray(frame)
        way = rng.randrange(6)
        if way == 0:
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif way == 1:  # cut short, its size corrected
            del data[rng.randrange(4, len(data)) :]
            data[:4] = struct.pack(">i", len(data) - 4)
        elif way == 2:  # cut short, so that the next one is swallowed
            del data[rng.randrange(1, len(data)) :]
        elif way == 3:
            data += rng.randbytes(rng.randint(1, 9))
            data[:4] = struct.pack(">i", len(data) - 4)
        elif way == 4:  # a length, a count or a number somewhere in it
            position = rng.randrange(4, max(5, len(data) - 3))
            data[position : position + 4] = rng.choice(WORDS)
            data[:4] = struct.pack(">i", len(data) - 4)
        else:
            data[:4] = rng.choice(WORDS)
        return bytes(data)

    def _foreign(self, api: Api, version: int) -> bytes:
        rng = self._random
        if rng.random() < 0.5:
            body = rng.randbytes(rng.randrange(200))
        else:
            other = rng.choice([entry for entry in VERSIONS if entry[0] is not api])
            body = self.hostile(*other)[14:]
        version = rng.choice((version, version, -1, api.max_version + 1, 32_767))
        key = rng.choice((api.key, api.key, api.key, -1, 999, 32_767))
        header = struct.pack(">hhih", key, version, rng.getrandbits(31), rng.choice((-1, 0, 0, -2, 32_767)))
        return struct.pack(">i", len(header) + len(body)) + header + body

    def hostile(self, api: Api, version: int) -> bytes:
        """A frame that decodes, of values that no one sane would send."""
        return encode_request(self._message(api.request, api.request), version, self._random.getrandbits(31), "evil")

    def _message(self, cls: type[Any], request: type[Any]) -> Any:
        return cls(**{row.name: self._value(row.type, row.name, cls, request) for row in read_table(cls)})

    def _value(self, type_: WireType, name: str, cls: type[Any], request: type[Any]) -> Any:
        rng = self._random
        match type_:
            case Fixed(code="?"):
                return rng.random() < 0.5
            case Fixed(code=code):
                return self._number(name, BITS[code])
            case Text():
                if rng.random() < 0.6 and name == "topic" and request.__name__ != "DeleteTopicsRequest":
                    return KNOWN_TOPIC
                if name == "strategy" and rng.random() < 0.6:
                    return "range"
                return rng.choice(TEXTS) if rng.random() < 0.98 else "y" * 32_767
            case Blob():
                return rng.randbytes(rng.randrange(30))
            case RecordsType():
                return self._bad_records()
            case Array(element=element):
                if name == "replicas":
                    return [rng.choice(UNPLACEABLE) for _ in range(rng.randrange(4))]
                count = rng.choice((0, 1, 1, 1, 2, 3, 12) if isinstance(element, type) else (0, 1, 3, 50))
                return [self._value(element, name, cls, request) for _ in range(count)]
            case _:
                return self._message(type_, request)

    def _number(self, name: str, bits: int) -> int:
        rng, most = self._random, 2 ** (bits - 1) - 1
        if name in ("partition", "acks", "replica_id", "leader_epoch", "timestamp") and rng.random() < 0.6:
            return rng.choice((0, 0, 1, 2, 3, -1, -2))
        if name == "session_timeout_ms" and rng.random() < 0.4:
            return 500  # so that some do become members of groups, and soon are none any more
        if name == "count":  # of partitions that a topic shall have
            return rng.choice((0, -1, -most, most))
        if name == "broker_id":
            return rng.choice(UNPLACEABLE)
        if name == "controller_epoch":
            return rng.choice((-1, -2, -most - 1, most, most - 1))
        if name == "replication_factor":
            return rng.choice((0, -1, 99, most, -most - 1))
        value = rng.choice((0, 1, -1, -2, 7, most, most - 1, -most - 1, rng.randrange(-most, most)))
        return value if name not in ("broker_epoch", "replica_epoch") or value not in self._broker_epochs else -1

    def _bad_records(self) -> bytes:
        """Never a set that could be appended: noise, a wrong CRC, a wrong size, a set in a set, or a piece of one."""
        rng = self._random
        good = rng.choice(self._records)
        way = rng.randrange(7)
        if way == 0:
            return rng.randbytes(rng.randrange(60))
        if way == 1:
            return good[:12] + bytes(byte ^ 0x5A for byte in good[12:16]) + good[16:]
        if way == 2:
            return good[:8] + rng.choice(WORDS) + good[12:-1]
        if way == 3:
            return good[:12] + b"\xff" * 4 + good[16:]
        if way == 4:
            return good[:-1] + good
        if way == 5:
            return message_set.build([(None, good, None)])[:-1]
        return b""
