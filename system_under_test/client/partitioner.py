"""Partitioners: choose the partition of a message whose sender has not chosen one."""

from random import Random
from typing import Protocol

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


class Partitioner(Protocol):
    def __call__(self, key: bytes | None, partitions: int, random: Random) -> int: ...


def hash_partitioner(key: bytes | None, partitions: int, random: Random) -> int:
    """Hashes the key, as Kafka's Java producer does. A message without a key gets a random partition."""
    if key is None:
        return random.randrange(partitions)
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Computes MurmurHash2 (Austin Appleby), 32 bits, seed 0x9747b28c, as Kafka's ``Utils.murmur2``.

    The result is unsigned; Java's is the same 32 bits read as signed.
    """
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
