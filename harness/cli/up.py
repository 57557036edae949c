"""``assay up``: runs a cluster in Docker until Ctrl-C."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from assay.harness.cli.command import ExitCode, InputError, add_system_option, note, parse_positive
from assay.harness.run.command_line import DEFAULT_NODES
from assay.harness.run.declared_nodes import check_node_counts, read_declarations, with_counts
from assay.harness.run.settings import DOCKER, Settings
from assay.harness.run.systems import find_system, with_defect

if TYPE_CHECKING:
    from assay.cluster.system import System


FORWARDED = (
    "these are forwarded ports, because this machine cannot reach the nodes' network. They cannot serve a protocol in "
    "which servers name each other's addresses, such as Kafka's metadata, MOVED of Redis Cluster, or Redis Sentinel"
)
ON_NETWORK = """\
for these, use the addresses of the nodes' network: {bootstrap}
run a client there, of an image that the engine has: {client}
or open a shell there, in a container with Python: {shell}"""


def add(commands: Any) -> None:
    parser = commands.add_parser("up", help="run a broker cluster in Docker, until Ctrl-C", description=(
        "Starts the broker and its ZooKeeper in containers, prints the brokers' addresses, or the local ports that are "
        "forwarded to them, on one line of standard output, and removes everything at Ctrl-C. Topics are created on "
        "first use."),
        epilog="example: kcat -b $(cat addresses) -L, after: assay up > addresses")  # fmt: skip
    parser.add_argument("--nodes", type=parse_positive, metavar="N",
        help="number of brokers, or of nodes of each role (default: as the system declares, else 3)")  # fmt: skip
    parser.add_argument(
        "--zookeepers", type=parse_positive, default=1, metavar="N", help="number of ZooKeeper servers (default: 1)"
    )
    parser.add_argument(
        "--partitions",
        type=parse_positive,
        default=4,
        metavar="N",
        help="number of partitions of a new topic (default: 4)",
    )
    parser.add_argument("--defect", metavar="NAME", help="switch on this defect; `assay defects` lists them")
    add_system_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.doctor import docker_available
    from assay.cluster.node import NodeError
    from assay.cluster.system import DeploymentError
    from assay.harness.cli.serve_cluster import ClusterAddresses, serve_cluster

    if not docker_available():
        raise InputError("no Docker engine answers, or no node image can be made; `assay doctor` says what is missing")
    system = _make_system(arguments)
    settings = _make_settings(system, arguments)

    def print_addresses(addresses: ClusterAddresses) -> None:
        print(addresses.bootstrap, flush=True)
        zookeeper = f", ZooKeeper at {addresses.zookeeper}" if addresses.zookeeper else ""
        note(f"{system.name}s at {addresses.bootstrap}{zookeeper}; Ctrl-C removes everything")
        if (network := addresses.network) is not None:
            note(FORWARDED)
            for line in ON_NETWORK.format(**vars(network)).splitlines():
                note(line)

    try:
        serve_cluster(system, settings, note, print_addresses)
    except (NodeError, DeploymentError) as error:
        raise InputError(str(error)) from error
    return ExitCode.PASS


def _make_settings(system: System, arguments: argparse.Namespace) -> Settings:
    """Creates the settings. Raises ``InputError`` for a number of nodes that the system does not declare."""
    given = None if arguments.nodes is None else str(arguments.nodes)
    nodes = int(given or DEFAULT_NODES)
    try:
        counts = read_declarations(system)
    except ValueError as error:
        raise InputError(str(error)) from None
    settings = Settings(seed=0, cluster=DOCKER, nodes=nodes, zookeepers=arguments.zookeepers)
    settings = with_counts(settings, given, system, counts)
    if (reason := check_node_counts(settings, given, system, counts)) is not None:
        raise InputError(reason)
    return settings


def _make_system(arguments: argparse.Namespace) -> System:
    """Creates the system. Raises ``SettingsError`` and ``InputError``."""
    from assay.cluster.system import SupportsStandalone

    system = find_system(arguments.system)
    if isinstance(system, SupportsStandalone):
        system = system.standalone(arguments.partitions)
    if arguments.defect is not None and arguments.defect not in system.defects:
        raise InputError(f"there is no defect {arguments.defect!r}; the defects are {', '.join(system.defects)}")
    return with_defect(system, arguments.defect)
