"""``assay image build``: the image that Docker nodes run."""

import argparse
import sys
from typing import Any

from assay.harness.cli.command import Exit


def add(commands: Any) -> None:
    actions = commands.add_parser("image", help="the node image").add_subparsers(required=True, metavar="ACTION")
    parser = actions.add_parser("build", help="build the image that Docker nodes run, unless it is there")
    parser.set_defaults(run=build)


def build(arguments: argparse.Namespace) -> Exit:
    from assay.cluster.docker.image import ensure

    print(ensure(lambda line: print(line, file=sys.stderr)))
    return Exit.PASS
