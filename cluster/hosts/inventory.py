"""Inventory of a user's machines, and how to reach them. An example of the file ``hosts.toml``:

user = "root"                       # default for all hosts
key = "~/.ssh/id_ed25519"

[[host]]
address = "10.0.0.11"
role = "server"                     # default: the system's main role

[[host]]
address = "10.0.0.12"
user = "admin"
sudo = true                         # this user may become root without a password
jump = { address = "bastion.example.org", user = "me" }
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import paramiko

from assay.cluster.regular_files import NotRegularError, read_regular
from assay.cluster.ssh.ssh_address import SshAddress
from assay.cluster.system import CLIENT_ROLE, ZOOKEEPER_ROLE, DeploymentError

KNOWN_HOSTS: Final = "~/.ssh/known_hosts"
COMPOSE: Final = "compose:"
"""Prefix of the name of a Compose project, which ``--hosts`` takes in place of a file."""
OPTIONS: Final = {ZOOKEEPER_ROLE: "--zookeepers", CLIENT_ROLE: "--workers"}
"""The option that sets the number of nodes of a role. For all other roles it is ``--nodes``."""


class InventoryError(DeploymentError):
    """The file is unreadable, or does not say how to reach a host. The message names file, host, and remedy."""


class _RawAddress(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    address: str = ""
    user: str = ""
    key: str = ""
    host_key: str = ""
    port: int = 22
    sudo: bool | None = None
    jump: "_RawAddress | None" = None


class _RawHost(_RawAddress, forbid_unknown_fields=True, omit_defaults=True):
    role: str = ""


class _RawInventory(msgspec.Struct, forbid_unknown_fields=True):
    host: list[_RawHost] = []
    user: str = "root"
    key: str = "~/.ssh/id_ed25519"
    sudo: bool = False
    known_hosts: str = KNOWN_HOSTS


@dataclass(frozen=True)
class InventoryHost:
    """A machine of the inventory. ``role``: empty for the system's main role."""

    role: str
    ssh: SshAddress


def read_inventory(path: Path) -> list[InventoryHost]:
    """Returns the hosts in the order of the file. Raises :class:`InventoryError`."""
    file = _parse_inventory(path)
    known = _read_known_hosts(_expand_user(file.known_hosts, str(path)))
    found = [
        InventoryHost(one.role, _to_ssh_address(one, file, known, f"{path}: host {number}"))
        for number, one in enumerate(file.host, 1)
    ]
    addresses = [one.ssh.address for one in found]
    if repeated := sorted({one for one in addresses if addresses.count(one) > 1}):
        raise InventoryError(f"{path}: {repeated[0]} is named twice, but each node needs its own machine")
    return found


def _parse_inventory(path: Path) -> _RawInventory:
    try:
        file = msgspec.convert(tomllib.loads(read_regular(path).decode()), _RawInventory)
    except FileNotFoundError:
        raise InventoryError(
            f"there is no {path}: write it (docs/guide/hosts.md), or name another with --hosts"
        ) from None
    except NotRegularError:
        raise InventoryError(f"{path} is not a regular file: name one with --hosts") from None
    except OSError as error:
        raise InventoryError(f"{path} cannot be read ({error.strerror}): name another with --hosts") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise InventoryError(f"{path}: {error}") from error
    except RecursionError:
        raise InventoryError(f"{path}: its values are nested too deep; docs/guide/hosts.md shows its form") from None
    if not file.host:
        raise InventoryError(f"{path} names no host: each is a table [[host]] with an address")
    for number, one in enumerate(file.host, 1):
        _require_address(one, f"{path}: host {number}")
    return file


def _require_address(raw: _RawAddress, where: str) -> None:
    """Raises :class:`InventoryError` if a host or its jump host lacks an address, or a text is not printable."""
    if not raw.address:
        raise InventoryError(f'{where} has no address: add address = "NAME or IP address"')
    if " " in raw.address:
        raise InventoryError(f"{where}: the address {raw.address!r} has a blank: remove it")
    for key, text in msgspec.structs.asdict(raw).items():
        if isinstance(text, str) and not text.isprintable():
            raise InventoryError(f"{where}: {key} = {text!r} has a character that is not printable: remove it")
    if raw.jump is not None:
        _require_address(raw.jump, f"{where}, jump")


def read_addresses(hosts: str) -> list[InventoryHost]:
    """Returns the hosts of a file. The file only has to have addresses, no logins.

    ``compose:PROJECT`` returns the containers of that Compose project, with its services as roles. Raises
    :class:`InventoryError`.
    """
    if hosts.startswith(COMPOSE):
        return _read_compose(hosts.removeprefix(COMPOSE))
    file = _parse_inventory(Path(hosts))
    return [InventoryHost(one.role, SshAddress(one.address, "", "", "")) for one in file.host]


def _read_compose(project: str) -> list[InventoryHost]:
    from assay.cluster.docker.engine import DockerEngineError, open_docker

    try:
        with open_docker() as client:
            found = client.containers.list(filters={"label": f"com.docker.compose.project={project}"})
            return [
                InventoryHost(str(one.labels["com.docker.compose.service"]), SshAddress(_address_of(one), "", "", ""))
                for one in sorted(found, key=lambda one: str(one.name))
            ]
    except DockerEngineError as error:
        raise InventoryError(f"compose:{project}: {error}") from None


def _address_of(container: Any) -> str:
    networks: Mapping[str, Mapping[str, str]] = container.attrs["NetworkSettings"]["Networks"]
    found = [net["IPAddress"] for net in networks.values() if net.get("IPAddress")]
    if not found:
        raise InventoryError(f"the container {container.name} has no address of its own; is it on the host's network?")
    return found[0]


def choose_by_role(
    hosts: Sequence[InventoryHost], main: str | None, counts: Mapping[str, int], path: Path
) -> dict[str, list[InventoryHost]]:
    """Returns as many hosts of each role as ``counts`` says. Raises :class:`InventoryError` if there are too few."""
    chosen: dict[str, list[InventoryHost]] = {}
    for role, count in counts.items():
        candidates = [host for host in hosts if (host.role or main) == role]
        if len(candidates) < count:
            option = OPTIONS.get(role, "--nodes")
            raise InventoryError(
                f"{path} has {len(candidates)} hosts of the role {role}, but {option} needs {count}: add hosts, "
                "or ask for fewer"
            )
        chosen[role] = candidates[:count]
    return chosen


def _expand_user(text: str, where: str) -> Path:
    """Replaces ``~`` by the home folder. Raises :class:`InventoryError` if there is none, or no such user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InventoryError(f"{where}: {text}: no home folder is known for it; give an absolute path") from None


def _read_known_hosts(path: Path) -> paramiko.HostKeys:
    keys = paramiko.HostKeys()
    try:
        if path.is_file():
            keys.load(str(path))
    except (OSError, ValueError, paramiko.SSHException, paramiko.hostkeys.InvalidHostKey) as error:
        raise InventoryError(f"{path}: {error}") from error
    return keys


def _to_ssh_address(raw: _RawAddress, file: _RawInventory, known: paramiko.HostKeys, where: str) -> SshAddress:
    host_key = raw.host_key
    if not host_key:
        name = raw.address if raw.port == 22 else f"[{raw.address}]:{raw.port}"
        keys: Mapping[str, Any] = known.lookup(name) or {}
        key = next((keys[kind] for kind in sorted(keys, key=lambda kind: (kind != "ssh-ed25519", kind))), None)
        if key is None:
            raise InventoryError(
                f"{where}: the host key of {name} is unknown: look at what `ssh-keyscan -p {raw.port} "
                f"{raw.address}` says, and add it to {file.known_hosts}, or here as host_key"
            )
        host_key = f"{key.get_name()} {key.get_base64()}"
    jump = None if raw.jump is None else _to_ssh_address(raw.jump, file, known, f"{where}, jump")
    # absolute, because the undo journal is read from other folders
    key = str(_expand_user(raw.key or file.key, where).absolute())
    sudo = file.sudo if raw.sudo is None else raw.sudo
    return SshAddress(raw.address, raw.user or file.user, key, host_key, raw.port, sudo, jump)
