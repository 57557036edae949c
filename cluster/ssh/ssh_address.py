"""Address and credentials of a machine as plain data, for inventories and for the undo journal."""

from contextlib import suppress
from pathlib import Path

import msgspec
import paramiko

from assay.cluster.node import NodeError, join_host_port
from assay.cluster.regular_files import read_regular
from assay.cluster.ssh.connection import Login


class SshAddress(msgspec.Struct, frozen=True):
    """Address and credentials of a machine.

    - ``key``: path of the user's private key
    - ``host_key``: the machine's key in the format of ``known_hosts`` without the name: ``ssh-ed25519 AAAA...``
    - ``sudo``: the user becomes root by sudo, without a password
    """

    address: str
    user: str
    key: str
    host_key: str
    port: int = 22
    sudo: bool = False
    jump: "SshAddress | None" = None
    """The jump host through which this machine is reached."""

    def __str__(self) -> str:
        return f"{self.user}@{join_host_port(self.address, self.port)}"

    def ports(self) -> set[int]:
        """Returns the SSH ports of this machine and of its jump hosts."""
        return {self.port} | (set() if self.jump is None else self.jump.ports())

    def login(self) -> Login:
        """Reads the keys. Raises :class:`NodeError` if one cannot be read."""
        try:
            path = Path(self.key).expanduser()
            read_regular(path)  # paramiko would wait for a program that writes to a FIFO
            with suppress(FileNotFoundError):
                read_regular(path.with_name(f"{path.name}-cert.pub"))  # paramiko reads it, too
            key = paramiko.PKey.from_path(path)
        except Exception as error:
            raise NodeError(f"{self}: the private key {self.key} cannot be read: {error}") from error
        jump = None if self.jump is None else self.jump.login()
        host_key = parse_host_key(self.host_key)
        return Login(self.address, self.user, key, host_key, self.port, self.sudo, jump, plain_shell=False)


def parse_host_key(text: str) -> paramiko.PKey:
    """Parses a public key. Raises :class:`NodeError` if it is none."""
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"host {text}")
    except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey) as error:
        raise NodeError(f"{text!r} is not a host key: {error}") from error
    if entry is None or entry.key is None:
        raise NodeError(f"{text!r} is not a host key; a host key looks like `ssh-ed25519 AAAA...`")
    key: paramiko.PKey = entry.key
    return key
