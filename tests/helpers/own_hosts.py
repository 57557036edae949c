"""Machines with an sshd that no cluster of the harness has made, and the file that names them.

They are containers, since this machine has no others; the harness knows them by SSH alone.
"""

from __future__ import annotations

import io
import os
import socket
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from docker.types import IPAMConfig, IPAMPool

from assay.cluster import journal, owner
from assay.cluster.docker import cluster, image, network
from assay.cluster.docker.engine import open_docker, undo_action

LABEL = "assay-test.hosts-of"
"""Not the harness's own label: what it sweeps are its own machines, and these are not."""
OUTPUT = "/tmp/output-of-the-test"


@dataclass(frozen=True)
class OwnHosts:
    """``file``: the inventory; ``addresses`` in its order; ``names`` of the containers, which Compose takes for its own
    ``project``.
    """

    file: Path
    addresses: Sequence[str]
    names: Sequence[str]
    project: str = ""

    def run(self, number: int, command: str) -> str:
        """Runs a shell command on a host, from 0, past SSH, and returns its output.

        Engines sometimes lose the output of a command (moby/moby#27289), so it goes through a file.
        """
        with open_docker() as client:
            host = client.containers.get(self.names[number])
            host.exec_run(["sh", "-c", f"{{ {command}\n}} >{OUTPUT} 2>&1"])
            chunks, _ = host.get_archive(OUTPUT)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as packed:
            file = packed.extractfile(packed.getmembers()[0])
            assert file is not None, OUTPUT
            return file.read().decode()


@contextmanager
def own_hosts(folder: Path, roles: Sequence[str], more: str = "", *, six: bool = False) -> Iterator[OwnHosts]:
    """A host for each of ``roles``. ``more``: lines at the top of the inventory. ``six``: known by IPv6 addresses."""
    key, host_key = cluster.generate_keys()
    secret = folder / "key"
    key.write_private_key_file(str(secret))  # type: ignore[attr-defined]
    name = f"hosts-of-the-test-{os.getpid()}" + ("-six" if six else "")
    marks = {LABEL: str(owner.current_owner()), "com.docker.compose.project": name}
    reference = image.ensure_node_image(lambda _: None)
    made: list[str] = []
    with open_docker() as client:
        _remove_those_of_the_dead(client)
        net = _network_of_six(client, name, marks) if six else network.create_network(client, name, marks, folder)
        try:
            for number in range(len(roles)):
                made.append(f"{name}-{number}")
                service = {"com.docker.compose.service": roles[number]}
                _start(
                    client,
                    reference,
                    made[-1],
                    net,
                    net.address(number),
                    marks | service,
                    cluster.archive_keys(key, host_key),
                )
            addresses = [net.address(number) for number in range(len(roles))]
            public = f"{host_key.get_name()} {host_key.get_base64()}"
            lines = [f'key = "{secret}"', more]
            for address, role in zip(addresses, roles, strict=True):
                lines += ["[[host]]", f'address = "{address}"', f'role = "{role}"', f'host_key = "{public}"']
            file = folder / "hosts.toml"
            file.write_text("\n".join(lines) + "\n")
            if not answers_by_ssh(addresses[0]):
                pytest.skip("this machine does not reach the engine's networks, and these tests log in to hosts there")
            yield OwnHosts(file, addresses, made, name)
        finally:
            for container in made:
                undo_action(client, journal.RemoveContainer(container))
            undo_action(client, journal.RemoveNetwork(net.name))


def answers_by_ssh(address: str, seconds: float = 30.0) -> bool:
    """Returns whether an SSH server answers at port 22 in time. A proxy on the way may accept and then say nothing."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((address, 22), timeout=3.0) as connection:
                if connection.recv(4) == b"SSH-":
                    return True
        except OSError:
            pass
        time.sleep(0.2)
    return False


@dataclass(frozen=True)
class _Six:
    """A network of IPv6 addresses."""

    name: str
    prefix: str

    def address(self, number: int) -> str:
        return f"{self.prefix}::{network.FIRST_HOST + number:x}"


def _network_of_six(client: Any, name: str, marks: dict[str, str]) -> _Six:
    net = _Six(name, f"fd00:a55a:{os.getpid() >> 16:x}:{os.getpid() & 0xFFFF:x}")
    pools = IPAMConfig(pool_configs=[IPAMPool(subnet=f"{net.prefix}::/64")])
    client.networks.create(name, driver="bridge", internal=True, enable_ipv6=True, labels=marks, ipam=pools)
    return net


def _start(
    client: Any,
    reference: str,
    name: str,
    net: network.RunNetwork | _Six,
    address: str,
    marks: dict[str, str],
    data: bytes,
) -> None:
    given = {"ipv6_address" if isinstance(net, _Six) else "ipv4_address": address}
    made = client.api.create_container(
        reference,
        name=name,
        labels=marks,
        host_config=client.api.create_host_config(cap_add=["NET_ADMIN"], network_mode=net.name),
        networking_config=client.api.create_networking_config({net.name: client.api.create_endpoint_config(**given)}),
    )
    client.api.put_archive(made["Id"], "/", data)
    client.api.start(made["Id"])


def _remove_those_of_the_dead(client: Any) -> None:
    """Removes containers and networks that killed tests have left."""
    for kind, remove in (("containers", journal.RemoveContainer), ("networks", journal.RemoveNetwork)):
        listed = getattr(client, kind).list(**({"all": True} if kind == "containers" else {}), filters={"label": LABEL})
        for one in listed:
            made_by = one.labels if kind == "containers" else one.attrs["Labels"]
            if not owner.parse_owner(made_by[LABEL]).alive():
                undo_action(client, remove(one.name))
