"""What is done to a host before a run and after it, as shell commands of root. Nothing here talks to a machine.

A run claims a host by a file with its id; what cleans the host looks at that id first, so that no run ever takes away
what belongs to another.
"""

import shlex
from collections.abc import Sequence

from assay.cluster.ssh import firewall, process

CLAIM = f"{process.FOLDER}/run"


CLAIMED = f"cat {CLAIM} 2>/dev/null || true"
"""Prints the run that has claimed the host, if there is one."""


def occupied(paths: Sequence[str]) -> str:
    """Prints what of these is there already, and would be overwritten and removed."""
    return f'for one in {shlex.join(paths)}; do [ -e "$one" ] && echo "$one"; done; true'


def roots(paths: Sequence[str]) -> str:
    """Prints, for each of these that are not there, the highest folder above it that is not there either, or itself."""
    return (
        f'for one in {shlex.join(paths)}; do while [ ! -e "${{one%/*}}/" ]; do one=${{one%/*}}; done; echo "$one"; done'
    )


def claim(run_id: str) -> str:
    """Fails, and prints the other run's id, while the host is claimed."""
    return (
        f"mkdir -p {process.FOLDER} && (set -C; echo {shlex.quote(run_id)} > {CLAIM}) 2>/dev/null "
        f"|| {{ cat {CLAIM} >&2; exit 22; }}"
    )


def clean(run_id: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Ends the process, lifts all rules, and removes ``paths`` and what the harness has written. May be repeated."""
    chains = "; ".join(
        f"for way in INPUT OUTPUT; do while iptables -w -D $way -j {chain} 2>/dev/null; do :; done; done; "
        f"iptables -w -F {chain} 2>/dev/null; iptables -w -X {chain} 2>/dev/null"
        for chain in (firewall.CHAIN, firewall.FROZEN)
    )
    ended = f"({process.KILL}) || [ $? -eq 20 ] || exit"
    gone = shlex.join([*paths, process.LOG.rpartition("/")[0], process.FOLDER])
    script = f'[ "$(cat {CLAIM} 2>/dev/null)" = {shlex.quote(run_id)} ] || exit 0\n{ended}\n{chains}\nrm -rf -- {gone}'
    return ("sh", "-c", script)


LOOK = """
echo user $(id -u)
echo python $(command -v python3 || echo no)
echo iptables $(iptables -w -nL INPUT >/dev/null 2>&1 && echo yes || echo no)
echo pkill $(command -v pkill || echo no)
echo setsid $(command -v setsid || echo no)
"""
"""What a node needs of a host, a word and a value in each line."""
CLOCK = "date +%s.%N"
