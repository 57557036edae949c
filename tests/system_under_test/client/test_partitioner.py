"""murmur2 agrees with Java's."""

from __future__ import annotations

from random import Random

import pytest

from assay.system_under_test.client.partitioner import hash_partitioner, murmur2
from assay.system_under_test.client.pool import Address, parse_addresses


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_kafkas_own_test(key: bytes, expected: int) -> None:
    """``UtilsTest.testMurmur2`` of Apache Kafka."""
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_messages_without_key_are_spread_over_all_partitions() -> None:
    random = Random(1)
    assert {hash_partitioner(None, 4, random) for _ in range(200)} == {0, 1, 2, 3}


def test_addresses_are_parsed_or_named() -> None:
    assert parse_addresses("a:1, b:2") == [Address("a", 1), Address("b", 2)]
    assert parse_addresses(["a"]) == [Address("a", 9092)]
    for bad in ("a:b", ":1", "a:0", ""):
        with pytest.raises(ValueError, match="host:port"):
            parse_addresses(bad)


def test_an_ipv6_address_has_brackets() -> None:
    assert parse_addresses("[::1]:1,[fd00::11], a:2") == [Address("::1", 1), Address("fd00::11", 9092), Address("a", 2)]
    assert [str(one) for one in (Address("::1", 1), Address("a", 2))] == ["[::1]:1", "a:2"]
    for bad in ("::1", "fd00::11:9092", "[::1]:", "[::1]9092", "[::1]:0", "[]:1", "[::1", "[a]:1"):
        with pytest.raises(ValueError, match=r"write host:port, and an IPv6 address as \[::1\]:9092"):
            parse_addresses(bad)
