"""Finds out what each machine of an inventory can do as a node. Changes nothing there."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.cluster.doctor_finding import Finding
from assay.cluster.hosts import inventory, upkeep
from assay.cluster.hosts.host_command import run
from assay.cluster.hosts.inventory import Host
from assay.cluster.node import NodeError

ALL = "--cluster=ssh"
REMEDIES = {
    "user": ("0", "log in as root, or set sudo = true for a user that may become root without a password", ALL),
    "python": ("yes", "install python3, 3.10 or newer", ALL),
    "iptables": ("yes", "install iptables; the kernel needs nf_tables", ALL),
    "pkill": ("", "install procps", "kill and stop of processes that have children"),
    "setsid": ("", "install util-linux", ALL),
}
"""For each line of :func:`upkeep.needs`: the good value (empty: any but ``no``), the remedy, and what needs it."""


def diagnose(hosts: Path) -> list[Finding]:
    """Raises :class:`inventory.InventoryError`."""
    found = inventory.read(hosts)
    with ThreadPoolExecutor(len(found)) as executor:
        return [finding for findings in executor.map(_of, found) for finding in findings]


def _of(host: Host) -> list[Finding]:
    where = str(host.reach)
    try:
        lines = run(host.reach, upkeep.needs(host.reach.address)).splitlines()
    except NodeError as error:
        remedy = "is it up, does the key open it, and is the host key the right one?"
        return [Finding(where, False, str(error), remedy, ALL, required=True)]
    findings = []
    for line in lines:
        what, _, value = line.partition(" ")
        if what not in REMEDIES:
            continue  # a shell's greeting
        wanted, remedy, enables = REMEDIES[what]
        good = value == wanted if wanted else value != "no"
        findings.append(
            Finding(f"{where} {what}", good, value, "" if good else remedy, enables, required=enables == ALL)
        )
    return findings
