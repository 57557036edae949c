"""``assay image build | list | prune``: the images of Docker nodes."""

import argparse
import sys
from typing import Any

from assay.harness.cli.command import ExitCode, InputError


def add(commands: Any) -> None:
    actions = commands.add_parser("image", help="the node images").add_subparsers(required=True, metavar="ACTION")
    parser = actions.add_parser("build", help="build the image of Docker nodes, unless it exists", description=(
        "Builds the image of Docker nodes, unless it exists; with --system also the images with the software that this "
        "system needs on its nodes, and on base images of its own. Afterwards runs need no network for them."
    ))  # fmt: skip
    parser.add_argument("--system", metavar="MODULE:SYSTEM", help="as for `assay defects`")
    parser.add_argument("--client", metavar="MODULE:CLASS", help="with --system: also the software of its client nodes")
    parser.set_defaults(run=build_images)
    parser = actions.add_parser(
        "list", help="list the images built here, with their systems and base images; * marks those that no run needs"
    )
    parser.set_defaults(run=list_images)
    parser = actions.add_parser("prune", help="remove the images that no run needs any more")
    parser.set_defaults(run=prune_images)


def build_images(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.docker import image, software
    from assay.cluster.docker.image import ImageError
    from assay.cluster.system import DeploymentError
    from assay.harness.run.settings import SettingsError
    from assay.harness.run.systems import find_system

    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    try:
        if arguments.system is None:
            if arguments.client is not None:
                raise InputError("--client is of a system: name that too, --system=MODULE:SYSTEM")
            print(image.ensure_node_image(progress))
            return ExitCode.PASS
        system = _add_client_nodes(find_system(arguments.system), arguments.client)
        for role, found in software.ensure_images(system, system.roles, progress).items():
            print(role, found.id)
    except (SettingsError, DeploymentError, ImageError) as error:
        raise InputError(str(error)) from error
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
    from assay.cluster.docker.image import ImageError

    try:
        for one in built_images.list_images():
            on = f", on {one.source}" if one.source else ""
            print(f"{' ' if one.used else '*'} {one.name:36} {one.size:>8}  {one.age:18} {one.purpose}{on}")
    except ImageError as error:
        raise InputError(str(error)) from error
    return ExitCode.PASS


def prune_images(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster.docker import built_images
    from assay.cluster.docker.image import ImageError

    try:
        for name in built_images.prune():
            print(f"removed {name}")
    except ImageError as error:
        raise InputError(str(error)) from error
    return ExitCode.PASS
