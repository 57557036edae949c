"""``assay image build | list | prune``: the images of Docker nodes."""

import argparse
import sys
from typing import Any

from assay.harness.cli.command import ExitCode, InputError


def add(commands: Any) -> None:
    actions = commands.add_parser("image", help="the node images").add_subparsers(required=True, metavar="ACTION")
    parser = actions.add_parser("build", help="build the image of Docker nodes, unless it exists", description=(
        "Builds the image of Docker nodes, unless it exists. With --system it also builds all images of that system: "
        "with the software that its nodes need, and on the base images that it names. Afterwards its runs need no "
        "network to build images."
    ))  # fmt: skip
    parser.add_argument("--system", metavar="MODULE:SYSTEM", help="the system whose images are built, as MODULE:SYSTEM")
    parser.add_argument("--client", metavar="MODULE:CLASS", help="with --system: also the software of its client nodes")
    parser.set_defaults(run=build_images)
    parser = actions.add_parser(
        "list", help="list the images built here, with their systems and base images; * marks those that no run needs"
    )
    parser.set_defaults(run=list_images)
    parser = actions.add_parser("prune", help="remove the images that no run needs any more")
    parser.set_defaults(run=prune_images)


def build_images(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.containers import SupportsContainers
    from assay.cluster.docker import image, software
    from assay.cluster.naming import plan_nodes
    from assay.harness.run.systems import find_system

    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    if arguments.system is None:
        if arguments.client is not None:
            raise InputError("--client needs the client's system, too: --system=MODULE:SYSTEM")
        print(image.ensure_node_image(progress))
        return ExitCode.PASS
    found = find_system(arguments.system)
    if isinstance(found, SupportsContainers):
        plans = plan_nodes(found.roles, found.node_counts, numbered_main=False)
        containers = software.list_containers(found, plans)
        for node, node_image in software.ensure_containers(found.name, containers, progress).items():
            print(node, node_image.target)
        return ExitCode.PASS
    system = _add_client_nodes(found, arguments.client)
    for role, node_image in software.ensure_images(system, system.roles, progress).items():
        print(role, node_image.target or node_image.id)
    return ExitCode.PASS


def _add_client_nodes(system: Any, client: str | None) -> Any:
    """Adds client nodes to a system, if a client class is named."""
    from assay.harness.run import import_by_name
    from assay.harness.run.client_nodes import SystemWithClientNodes

    if client is None:
        return system
    kind = import_by_name.import_named("--client", client, "client", lambda kind: hasattr(kind, "invoke"))
    try:
        return SystemWithClientNodes(system, kind)
    except ValueError as error:
        raise InputError(f"--client={client}: {error}") from error


def list_images(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.docker import built_images

    for image in built_images.list_images():
        base = f", on {image.source}" if image.source else ""
        print(f"{' ' if image.used else '*'} {image.name:36} {image.size:>8}  {image.age:18} {image.purpose}{base}")
    return ExitCode.PASS


def prune_images(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.docker import built_images

    for name in built_images.prune():
        print(f"removed {name}")
    return ExitCode.PASS
