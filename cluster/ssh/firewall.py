"""Packet filter of a node: commands for a chain of rules that drop or reject packets from given addresses.

The chain is the first rule of INPUT, in the node's network namespace. Dropped packets stall an established connection
like a cut cable: neither side gets a reset. A rejected packet is answered with a reset. No rule rejects a reset. If two
nodes reject each other, each must still receive the other's resets. ``-w`` waits for the lock of xtables instead of
failing. Nodes with IPv6 addresses use the filter for IPv6.

A second chain silences a machine before it is frozen. A frozen container shares the host's kernel, which would go on
acknowledging packets. So the chain drops all packets. Commands do not need the network, since only containers can be
frozen, and the engine reaches them.
"""

import re
from collections.abc import Mapping, Sequence

from assay.cluster.node import Flow

CHAIN = "ASSAY"

FOUR, SIX = "iptables", "ip6tables"
"""Filter programs for IPv4 and IPv6."""
NEIGHBOURS = tuple(f"-p icmpv6 --icmpv6-type {kind}" for kind in (135, 136))
"""Matches packets of neighbour discovery, which IPv6 needs to find a machine. (iptables does not filter IPv4's ARP.)"""


def filter_program(address: str) -> str:
    """Returns the filter program for packets from this address."""
    return SIX if ":" in address else FOUR


def set_up_command(tables: str) -> str:
    """Returns the command that creates the chain. Idempotent."""
    return (
        f"{tables} -w -N {CHAIN} 2>/dev/null; "
        f"{tables} -w -C INPUT -j {CHAIN} 2>/dev/null || {tables} -w -I INPUT 1 -j {CHAIN}"
    )


def flush_command(tables: str) -> str:
    return f"{tables} -w -F {CHAIN}"


def undo_command(tables: str) -> tuple[str, ...]:
    """Returns the command that flushes the chain. It is no error if the chain is gone, for example after a reboot."""
    return ("sh", "-c", f"{tables} -w -nL {CHAIN} >/dev/null 2>&1 || exit 0; exec {flush_command(tables)}")


def count_command(tables: str) -> str:
    return f"{tables} -w -nvxL {CHAIN}"


def apply_command(tables: str) -> str:
    """Returns the command that reads the output of :func:`render_rules` and applies all rules atomically."""
    return f"{tables}-restore -w --noflush"


FROZEN = "ASSAY-FROZEN"
SILENCE = (
    f"iptables -w -N {FROZEN} 2>/dev/null; set -e; iptables -w -F {FROZEN}; "
    f"iptables -w -A {FROZEN} -j DROP; "
    f"for way in INPUT OUTPUT; do iptables -w -C $way -j {FROZEN} 2>/dev/null "
    f"|| iptables -w -I $way 1 -j {FROZEN}; done"
)
"""Command that silences a machine. It is idempotent, like ``UNSILENCE``."""
UNSILENCE = (
    "sh",
    "-c",
    f"for way in INPUT OUTPUT; do while iptables -w -D $way -j {FROZEN} 2>/dev/null; do :; done; done",
)

DROPPED, REJECTED = "-j DROP", "-p tcp ! --tcp-flags RST RST -j REJECT --reject-with tcp-reset"


def render_rules(
    addresses: Sequence[str], *, reject: bool = False, flow: Flow | None = None, spared: Sequence[int] = ()
) -> bytes:
    """Returns one rule per peer address, in the format of iptables-restore.

    ``spared``: TCP ports, on either side, to which no rule applies: SSH's ports, because a peer may be a jump host.
    """
    action = REJECTED if reject else DROPPED
    if flow is not None:
        action = f"-p tcp {_match_options(flow)} {action.removeprefix('-p tcp ')}"
    lines = [f"-A {CHAIN} -p tcp --{side} {port} -j RETURN" for port in spared for side in ("dport", "sport")]
    if any(filter_program(address) == SIX for address in addresses):
        lines += [f"-A {CHAIN} {what} -j RETURN" for what in NEIGHBOURS]
    lines += [f"-A {CHAIN} -s {address} {action}" for address in addresses]
    return "\n".join(["*filter", *lines, "COMMIT", ""]).encode()


def _match_options(flow: Flow) -> str:
    port = f"--{'sport' if flow.from_server else 'dport'} {flow.port}"
    return port if flow.every == 1 else f"{port} -m statistic --mode nth --every {flow.every} --packet {flow.every - 1}"


def parse_counts(listing: str, names: Mapping[str, str]) -> dict[str, int]:
    """Parses the output of :func:`count_command`: packets per peer's name and flow.

    ``names`` maps addresses to names.
    """
    packets: dict[str, int] = {}
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[2] in ("DROP", "REJECT") and fields[0].isdigit():
            address = next((field for field in fields[3:] if field in names), None)
            if address is not None:
                key = names[address] + _parse_flow(line)
                packets[key] = packets.get(key, 0) + int(fields[0])
    return packets


def _parse_flow(line: str) -> str:
    port, every = _PORT.search(line), _EVERY.search(line)
    if port is None:
        return ""
    return str(Flow(int(port[2]), from_server=port[1] == "s", every=int(every[1]) if every else 1))


_PORT, _EVERY = re.compile(r"\b([sd])pt:(\d+)"), re.compile(r"\bevery (\d+)")
