"""The node's own packet filter: one chain of ours, first in INPUT, that drops what comes from given addresses.

The rules live inside the node's network namespace. A packet that is dropped on arrival makes an established connection
stall as a cut cable would: no reset tells either side. ``-w`` waits for xtables' lock instead of failing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CHAIN = "ASSAY"

SET_UP = (
    f"iptables -w -N {CHAIN} 2>/dev/null; "
    f"iptables -w -C INPUT -j {CHAIN} 2>/dev/null || iptables -w -I INPUT 1 -j {CHAIN}"
)
"""Idempotent."""
FLUSH = ("iptables", "-w", "-F", CHAIN)
COUNT = f"iptables -w -nvxL {CHAIN}"

DROP = "iptables-restore -w --noflush"
"""Reads :func:`rules` from its standard input and applies all of them at one instant."""


def rules(addresses: Sequence[str]) -> bytes:
    """One rule per address of a peer, in the form iptables-restore takes."""
    lines = [f"-A {CHAIN} -s {address} -j DROP" for address in addresses]
    return "\n".join(["*filter", *lines, "COMMIT", ""]).encode()


def counted(listing: str, names: Mapping[str, str]) -> dict[str, int]:
    """Packets per peer's name from what :data:`COUNT` printed; ``names`` goes from address to name."""
    packets: dict[str, int] = {}
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[2] == "DROP" and fields[0].isdigit():
            address = next((field for field in fields[3:] if field in names), None)
            if address is not None:
                packets[names[address]] = packets.get(names[address], 0) + int(fields[0])
    return packets
