"""Finds out what each machine of an inventory can do as a node. Changes nothing there."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.cluster.doctor_finding import DoctorFinding
from assay.cluster.hosts import inventory, upkeep
from assay.cluster.hosts.host_command import run_on_host
from assay.cluster.hosts.inventory import InventoryHost
from assay.cluster.node import NodeError

ALL = "--cluster=ssh"
REMEDIES = {
    "user": ("0", "log in as root, or set sudo = true for a user that may become root without a password", ALL),
    "python": ("yes", "install python3, 3.10 or newer", ALL),
    "iptables": ("yes", "install iptables; the kernel needs nf_tables", ALL),
    "pkill": ("", "install procps", "kill and stop of processes that have children"),
    "setsid": ("", "install util-linux", ALL),
}
"""For each line of :func:`upkeep.needs_command`: good value (empty: any but ``no``), remedy, and what needs it."""


def diagnose(hosts: Path) -> list[DoctorFinding]:
    """Raises :class:`inventory.InventoryError`."""
    found = inventory.read_inventory(hosts)
    with ThreadPoolExecutor(len(found)) as executor:
        return [finding for findings in executor.map(_diagnose_host, found) for finding in findings]


def _diagnose_host(host: InventoryHost) -> list[DoctorFinding]:
    where = str(host.reach)
    try:
        lines = run_on_host(host.reach, upkeep.needs_command(host.reach.address)).splitlines()
    except NodeError as error:
        remedy = "is it up, does the key open it, and is the host key the right one?"
        return [DoctorFinding(where, False, str(error), remedy, ALL, required=True)]
    findings = []
    for line in lines:
        what, _, value = line.partition(" ")
        if what not in REMEDIES:
            continue  # a shell's greeting
        wanted, remedy, enables = REMEDIES[what]
        good = value == wanted if wanted else value != "no"
        findings.append(
            DoctorFinding(f"{where} {what}", good, value, "" if good else remedy, enables, required=enables == ALL)
        )
    return findings
