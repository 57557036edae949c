"""``assay image build | list | prune``: the images that Docker nodes run."""

import argparse
import sys
from typing import Any

from assay.harness.cli.command import Exit, InputError


def add(commands: Any) -> None:
    actions = commands.add_parser("image", help="the node images").add_subparsers(required=True, metavar="ACTION")
    parser = actions.add_parser("build", help="build the image that Docker nodes run, unless it is there", description=(
        "Builds the image that Docker nodes run, unless it is there; with --system also those with the packages that "
        "this system says its nodes need. From then on no network is needed for them."
    ))  # fmt: skip
    parser.add_argument("--system", metavar="MODULE:SYSTEM", help="as for `assay defects`")
    parser.set_defaults(run=build)
    parser = actions.add_parser("list", help="those that were built here; * where no run needs it any more")
    parser.set_defaults(run=show)
    parser = actions.add_parser("prune", help="remove those that no run needs any more")
    parser.set_defaults(run=prune)


def build(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.docker import image, software
    from assay.cluster.docker.image import ImageError
    from assay.cluster.system import DeploymentError
    from assay.harness.run.settings import SettingsError
    from assay.harness.run.systems import system_named

    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    try:
        if arguments.system is None:
            print(image.ensure(progress))
            return Exit.PASS
        system = system_named(arguments.system)
        for role, found in software.ensure(system, system.roles, progress).items():
            print(role, found)
    except (SettingsError, DeploymentError, ImageError) as error:
        raise InputError(str(error)) from error
    return Exit.PASS


def show(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.docker import software
    from assay.cluster.docker.image import ImageError

    try:
        for name, size, age, used in software.present():
            print(f"{' ' if used else '*'} {name:36} {size:>8}  {age}")
    except ImageError as error:
        raise InputError(str(error)) from error
    return Exit.PASS


def prune(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.docker import software
    from assay.cluster.docker.image import ImageError

    try:
        for name in [name for name, _, _, used in software.present() if not used]:
            software.remove(name)
            print(f"removed {name}")
    except ImageError as error:
        raise InputError(str(error)) from error
    return Exit.PASS
