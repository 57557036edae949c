"""Rules for one flow of a peer: what iptables is given, and what it says of them (1.8.9, Debian 12)."""

from __future__ import annotations

from assay.cluster.node import Flow
from assay.cluster.ssh.firewall import filter_program, parse_counts, render_rules

LISTING = """Chain ASSAY (1 references)
    pkts      bytes target     prot opt in     out     source               destination
       2        0 DROP       6    --  *      *       127.0.0.2            0.0.0.0/0            tcp spt:7001
       3        0 DROP       6    --  *      *       127.0.0.3            0.0.0.0/0            tcp dpt:7001
       5        0 REJECT     6    --  *      *       127.0.0.5            0.0.0.0/0            tcp spt:7001 flags:!0x04/0x04 statistic mode nth every 3 packet 2 reject-with tcp-reset
       7        0 REJECT     6    --  *      *       127.0.0.6            0.0.0.0/0            tcp flags:!0x04/0x04 reject-with tcp-reset
      11        0 DROP       0    --  *      *       127.0.0.2            0.0.0.0/0
"""  # noqa: E501


SIX = """Chain ASSAY (0 references)
    pkts      bytes target     prot opt in     out     source               destination
       1        0 RETURN     58   --  *      *       ::/0                 ::/0                 ipv6-icmptype 135
       2        0 DROP       6    --  *      *       fd00::b              ::/0                 tcp spt:7001
       3        0 REJECT     6    --  *      *       fd00::c              ::/0                 tcp flags:!0x04/0x04 reject-with tcp-reset
       5        0 DROP       0        *      *       fd00::d              ::/0
"""  # noqa: E501
"""In the last line without ``opt``, as older versions have it."""


def test_rules_for_ipv6_addresses_are_of_another_filter_and_hide_no_machine_from_its_neighbours() -> None:
    assert (filter_program("10.0.0.1"), filter_program("fd00::1")) == ("iptables", "ip6tables")
    assert b"icmpv6" not in render_rules(["10.0.0.1"])
    first, second, *others = render_rules(["fd00::b"]).decode().splitlines()[1:]
    assert "--icmpv6-type 135 -j RETURN" in first
    assert "--icmpv6-type 136 -j RETURN" in second
    assert others == ["-A ASSAY -s fd00::b -j DROP", "COMMIT"]
    assert parse_counts(SIX, {f"fd00::{one}": f"n{one}" for one in "bcd"}) == {"nb:7001": 2, "nc": 3, "nd": 5}


def test_a_flow_is_matched_by_its_port_and_every_third_packet_by_the_kernels_counter() -> None:
    assert b"-s 1.1.1.1 -p tcp --sport 7001 -j DROP" in render_rules(["1.1.1.1"], flow=Flow(7001))
    assert b"-s 1.1.1.1 -p tcp --dport 7001 -j DROP" in render_rules(["1.1.1.1"], flow=Flow(7001, from_server=False))
    assert (
        b"-s 1.1.1.1 -p tcp --sport 7001 -m statistic --mode nth --every 3 --packet 2 ! --tcp-flags RST RST"
        b" -j REJECT --reject-with tcp-reset"
    ) in render_rules(["1.1.1.1"], reject=True, flow=Flow(7001, every=3))


def test_each_flow_has_its_own_count() -> None:
    names = {f"127.0.0.{number}": f"n{number}" for number in range(2, 7)}
    assert parse_counts(LISTING, names) == {"n2:7001": 2, "n3>7001": 3, "n5:7001/3": 5, "n6": 7, "n2": 11}
