"""Tests what the program that queues a node's packets decides of each; the kernel's end is tried in Docker."""

from __future__ import annotations

import itertools
import random

from assay.cluster.ssh.packets import LONGEST_WAIT, Shaper


def packet(port: int = 9092, size: int = 100) -> bytes:
    """IPv4 and TCP as far as they are looked at."""
    head = bytes(12) + bytes([198, 18, 0, 2, 198, 18, 0, 3]) + port.to_bytes(2, "big") + b"\x10\x00"
    return head + bytes(size - len(head))


def six(port: int) -> bytes:
    """Returns the headers of an IPv6 packet."""
    ends = bytes.fromhex("fd00") + bytes(13) + b"\x02" + bytes.fromhex("fd00") + bytes(13) + b"\x03"
    return b"\x60" + bytes(7) + ends + port.to_bytes(2, "big") + b"\x10\x00"


def sent(shaper: Shaper, count: int, *, port: int = 9092, size: int = 100) -> list[tuple[float, bool] | None]:
    """Returns what is decided of so many packets, one each millisecond."""
    return [shaper.due(packet(port, size), number / 1000) for number in range(count)]


def test_late_packets_keep_their_order_on_each_connection() -> None:
    shaper = Shaper({"delay": 0.2, "late": 1.0}, random.Random(1))
    due = [found[0] for found in sent(shaper, 200) if found]
    assert due == sorted(due)
    assert all(0.1 <= when - number / 1000 <= 0.21 for number, when in enumerate(due))
    for another in (packet(7000), six(9092)):
        other = shaper.due(another, 0.0)
        assert other is not None
        assert other[0] < max(due), "another connection waits for none of them"
    assert shaper.counts == {"seen": 202, "late": 202, "lost": 0, "doubled": 0}


def test_connections_over_ipv6_have_an_order_each() -> None:
    shaper = Shaper({"delay": 1.0, "late": 1.0}, random.Random(1))
    last = max(found[0] for number in range(200) if (found := shaper.due(six(9092), number / 1000)))
    other = shaper.due(six(7000), 0.2)
    assert other is not None
    assert other[0] < last


def test_packets_that_are_not_late_overtake_those_that_are() -> None:
    shaper = Shaper({"delay": 0.1, "late": 0.3, "overtaking": True}, random.Random(1))
    due = [found[0] for found in sent(shaper, 200) if found]
    assert due != sorted(due)
    assert due[0] >= 0.05, "the first is late"
    assert 30 <= shaper.counts["late"] <= 90


def test_a_share_is_lost_or_doubled_and_the_first_always() -> None:
    lost = sent(Shaper({"loss": 0.1}, random.Random(1)), 500)
    assert lost[0] is None
    assert 25 <= lost.count(None) <= 90
    doubled = [found[1] for found in sent(Shaper({"copies": 0.1}, random.Random(1)), 500) if found]
    assert doubled[0]
    assert 25 <= sum(doubled) <= 90
    assert len(doubled) == 500


def test_packets_are_rationed_and_lost_where_too_many_wait() -> None:
    shaper = Shaper({"rate": 10_000.0, "late": 1.0}, random.Random(1))
    due = [found[0] for found in sent(shaper, 300, size=1000) if found]
    assert all(after - before >= 0.0999 for before, after in itertools.pairwise(due))
    assert len(due) + shaper.counts["lost"] == 300
    assert max(due) <= 0.3 + LONGEST_WAIT


def test_what_is_not_shaped_goes_at_once() -> None:
    assert sent(Shaper({}, random.Random(1)), 3) == [(0.0, False), (0.001, False), (0.002, False)]
