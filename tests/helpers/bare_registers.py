"""Registers whose image has one static program and no shell, their client, and the image."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from assay import REGISTER_ANOMALIES, Endpoint, Generator, Settings, experiment, forbid
from assay.cluster.docker import layer, preload
from assay.cluster.docker.preload import CSource, StaticProgram
from assay.cluster.node import Cluster, Node
from assay.cluster.system import Software, System
from assay.workloads.generic.registers import VersionedRegisters, unique_values

PORT = 7000
SECONDS = 1.0
"""Maximum seconds until a server answers."""
KEYS = ["r0", "r1", "r2"]
"""Each register is on the server of this number."""
LINKED, FILE = "/var/run/registers", "/var/run/registers/log"
"""``/var/run`` is an absolute link to ``/run`` in the image."""
UID, GID = 1234, 2345
PROGRAM = "registers"
DOCKERFILE = f"""\
FROM scratch
COPY root/ /
ENV GREETING=hello PATH=/srv
LABEL mine=yes
WORKDIR /work
VOLUME /run/registers
USER {UID}:{GID}
"""


SOURCE = Path(__file__).parent.parent / "cluster" / "docker" / "registers.c"


@dataclass(frozen=True)
class _Server(StaticProgram):
    @property
    def source(self) -> Path:
        return SOURCE


@dataclass(frozen=True)
class _DynamicServer(CSource):
    """The server as a program that needs a loader and the C library of its image."""

    @property
    def source(self) -> Path:
        return SOURCE

    def command(self, compiler: str, source: str, target: str) -> list[str]:
        return [compiler, "-O2", "-o", target, source]


def write_context(folder: Path, dynamic: bool = False) -> Path:
    """Writes a Dockerfile with all that it copies. Returns its path.

    ``dynamic``: the program loads the C library of this machine, which is copied into the image with its loader.
    """
    for name in ("srv", "run", "var"):
        (folder / "root" / name).mkdir(parents=True)
    (folder / "root" / "var" / "run").symlink_to("/run")
    program = folder / "root" / "srv" / PROGRAM
    program.write_bytes(preload.compile_here(_DynamicServer(PROGRAM) if dynamic else _Server(PROGRAM)))
    program.chmod(0o755)
    for library in _list_libraries(program) if dynamic else ():
        copy = folder / "root" / library.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, copy)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    return folder / "Dockerfile"


def _list_libraries(program: Path) -> list[Path]:
    """Returns the libraries that a program loads, its loader, and libdl, which older compilers name in libraries."""
    printed = layer.run_command(["ldd", str(program)]).stdout
    found = [Path(path) for path in re.findall(r"(/\S+) \(0x", printed)]
    (libc,) = [path for path in found if path.name.startswith("libc.")]
    return [*found, libc.with_name("libdl.so.2")]


@contextmanager
def built_image(folder: Path, name: str, dynamic: bool = False) -> Iterator[str]:
    """Builds the image, which belongs to the user and not to the harness. Removes it in the end."""
    write_context(folder, dynamic)
    layer.run_command(["docker", "build", "-q", "-t", name, str(folder)], timeout=60)
    try:
        yield name
    finally:
        layer.run_command(["docker", "image", "rm", "-f", name], check=False)


class BareRegisters(System):
    name, roles = "bare-registers", ("server",)

    def __init__(self, image: str, command: Sequence[str] = (PROGRAM,), **given: Any) -> None:
        self.given = Software(image=image, **given)
        self.command = command

    def software(self, role: str) -> Software:
        return self.given

    def port(self, role: str) -> int:
        return PORT

    def argv(self, node: Node) -> Sequence[str]:
        return [*self.command, str(PORT), FILE, *self.addresses[node.name]]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        self.addresses = {
            node.name: [peer.address for peer in cluster.nodes if peer is not node] for node in cluster.nodes
        }
        return {"/etc/registers.conf": b"nothing\n"}

    def data_folder(self, node: Node) -> str:
        return LINKED

    def data_files(self, node: Node) -> Sequence[str]:
        return [f"{LINKED}/*"]

    async def durable_size(self, node: Node, path: str) -> int:
        return (await node.find_files(path))[path]

    async def ready(self, node: Node) -> bool:
        reader, writer = await asyncio.open_connection(node.address, PORT)
        writer.write(b"get r0\n")
        answered = await reader.readline()
        writer.close()
        return bool(answered)


class RegisterClient(VersionedRegisters):
    """Keeps a connection to each server that it has talked to."""

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError, EOFError, ValueError)
    refusals: ClassVar[tuple[type[Exception], ...]] = (ValueError,)

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        self.addresses = addresses
        self.open_sockets: dict[str, socket.socket] = {}

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.addresses = endpoint.roles["server"]

    def close(self) -> None:
        for connection in self.open_sockets.values():
            connection.close()

    def ask(self, key: str, line: str) -> dict[str, Any]:
        host, _, port = self.addresses[int(key[1:])].rpartition(":")
        try:
            if key not in self.open_sockets:
                self.open_sockets[key] = socket.create_connection((host, int(port)), SECONDS)
            self.open_sockets[key].sendall(f"{line}\n".encode())
            with self.open_sockets[key].makefile() as answers:
                answer = answers.readline()
            if not answer:
                raise EOFError
        except (OSError, EOFError):
            if key in self.open_sockets:
                self.open_sockets.pop(key).close()
            raise
        if answer == "changed\n":
            raise ValueError(answer)
        value, version = answer.split()
        return {"value": None if value == "-" else int(value), "version": int(version)}

    def read(self, key: str) -> dict[str, Any]:
        return self.ask(key, f"get {key}")

    def write(self, key: str, value: int, version: int | None = None) -> dict[str, Any]:
        return self.ask(key, f"set {key} {value} {-1 if version is None else version}")


def make_experiment(system: BareRegisters) -> Any:
    @experiment(system=system, client=RegisterClient, contract=forbid(*REGISTER_ANOMALIES))
    def test_bare_registers(settings: Settings) -> Generator:
        return unique_values(KEYS)

    return test_bare_registers
