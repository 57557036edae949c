"""Speed of control through the engine: SSH over ``docker exec``, compared with SSH over TCP to the same container.

    python benchmarks/control.py [--commands 1000] [--megabytes 100] [--rounds 3] [--json]

A container of the node image runs an sshd. In each round, both ways open a connection, run short commands one after
another, and read a file of random bytes. The ways alternate. A ratio is the time through the engine divided by the time
over TCP. Needs a Docker engine whose networks this machine reaches.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any, Final

from assay.cluster.docker import image
from assay.cluster.docker.cluster import archive_keys, generate_keys
from assay.cluster.docker.engine import make_stream_command, open_docker
from assay.cluster.ssh.connection import Login, SshConnection

from figures import Output, make_parser

PARTS: Final = ("connect", "commands", "megabytes")
CONNECT_SECONDS: Final = 30.0
FILE: Final = "/tmp/random"


@contextmanager
def start_container(megabytes: int) -> Iterator[tuple[Login, Login]]:
    """Starts a container with a file of random bytes. Yields the logins over TCP and through the engine."""
    reference = image.ensure_node_image(lambda line: print(line, file=sys.stderr))
    key, host_key = generate_keys()
    with open_docker() as client:
        container = client.api.create_container(reference, name=f"assay-control-{os.getpid()}")
        try:
            client.api.put_archive(container["Id"], "/", archive_keys(key, host_key))
            client.api.start(container["Id"])
            found: dict[str, Any] = client.api.inspect_container(container["Id"])
            address = found["NetworkSettings"]["Networks"]["bridge"]["IPAddress"]
            over_tcp = Login(address, "root", key, host_key)
            connection = SshConnection("container", over_tcp)
            connection.connect(time.monotonic() + CONNECT_SECONDS)
            connection.run(f"head -c {megabytes}M /dev/urandom > {FILE}", timeout=120)
            connection.close()
            yield over_tcp, replace(over_tcp, stream=make_stream_command(container["Id"]))
        finally:
            client.api.remove_container(container["Id"], force=True)


def measure(login: Login, commands: int) -> dict[str, float]:
    """Returns the seconds of each part."""
    start = time.perf_counter()
    connection = SshConnection("container", login)
    connection.connect(time.monotonic() + CONNECT_SECONDS)
    try:
        connected = time.perf_counter()
        for _ in range(commands):
            connection.run("true")
        ran = time.perf_counter()
        connection.read(FILE)
        return dict(zip(PARTS, (connected - start, ran - connected, time.perf_counter() - ran), strict=True))
    finally:
        connection.close()


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--commands", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    output, ratios = Output(options.json), {part: list[float]() for part in PARTS}
    with start_container(options.megabytes) as (over_tcp, through_engine):
        for _ in range(options.rounds):
            tcp, engine = measure(over_tcp, options.commands), measure(through_engine, options.commands)
            for part in PARTS:
                ratios[part].append(engine[part] / tcp[part])
                output.text(f"{part}: {engine[part]:.2f} s through the engine, {tcp[part]:.2f} s over TCP")
    figures = {part: round(median(found), 2) for part, found in ratios.items()}
    output.text(f"median ratios: {figures}")
    output.figures(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
