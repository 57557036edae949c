"""Which partition of the offsets topic a group belongs to; its leader is the group's coordinator."""

import struct


def java_hash(text: str) -> int:
    """What Java's ``String.hashCode`` gives, as an unsigned number of 32 bits: clients and tools compute it, too."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def partition_of(group_id: str, partitions: int) -> int:
    return (java_hash(group_id) & 0x7FFFFFFF) % partitions
