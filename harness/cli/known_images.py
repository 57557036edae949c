"""Images that ``assay init`` knows by their names, and the test that suits each of them.

Each row of ``KNOWN`` names a client and a workload of ``assay.workloads``. The written test imports them, so nothing of
them is imported here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from assay.cluster.containers import Container


@dataclass(frozen=True)
class Workload:
    """The operations of a test, and their contract.

    - ``imports``: maps modules to the names that the test imports from them
    - ``contract``: an expression with ``{terms}`` in the place of further arguments
    - ``traffic``: an expression for the generator
    - ``promise``: what the contract demands, as a sentence
    - ``operations``: what clients do, as a sentence
    - ``has_patience``: whether the contract takes ``patience``
    """

    imports: Mapping[str, Sequence[str]]
    contract: str
    traffic: str
    promise: str
    operations: str
    has_patience: bool = True


REGISTERS: Final = Workload(
    imports={"assay": ["linearizable"], "assay.workloads.generic.registers": ["few_values"]},
    contract='linearizable("cas-register", {terms})',
    traffic='few_values(["r0", "r1", "r2", "r3", "r4"])',
    promise="A read returns the latest write, and a swap replaces only its expected value.",
    operations="Clients read and write these registers, and replace values that they expect.",
)
SETS: Final = Workload(
    imports={"assay": ["SET_ANOMALIES", "forbid"], "assay.workloads.generic": ["sets"]},
    contract="forbid(*SET_ANOMALIES, {terms})",
    traffic="sets.traffic()",
    promise="No acknowledged element is missing from the set in the end.",
    operations="Clients add unique elements to a set, and read the set in the end.",
)
LISTS: Final = Workload(
    imports={"assay.workloads.generic": ["list_append"]},
    contract='list_append.build_contract("serializable", {terms})',
    traffic="list_append.traffic()",
    promise="Some order of all transactions explains what they read.",
    operations="Clients execute transactions that append to lists and read them.",
    has_patience=False,
)


@dataclass(frozen=True)
class KnownImage:
    """A system that is recognised by the name of its image.

    - ``name``: the system's name
    - ``pattern``: regular expression for the last part of the image's name, without the tag
    - ``port``: where it serves clients
    - ``workload``, ``client``: the test, and the client as ``module.Class``
    - ``patience``: seconds for which a client waits for a server that does not answer
    - ``folder``: where its data are
    - ``folder_is_default``: whether they are there without any setting
    - ``folder_options``, ``folder_variable``: options of its command, and the variable, that name another folder
    - ``files``: patterns of append-only files below that folder
    - ``account``: maps attributes of the client to options and variables that have their values, and to the default
    - ``driver``: the package that the client imports; ``extra``: the extra of assay that installs it
    - ``durable_by``: options and variables without which it may lose acknowledged data, and what it then does
    - ``service``: further settings of a Compose file for ``--image``
    """

    name: str
    pattern: str
    port: int
    workload: Workload
    client: str
    patience: float
    folder: str
    folder_is_default: bool = True
    folder_options: Sequence[str] = ()
    folder_variable: str = ""
    files: Sequence[str] = ()
    account: Mapping[str, tuple[Sequence[str], str]] = field(default_factory=dict)
    driver: str | None = None
    extra: str | None = None
    durable_by: tuple[Sequence[str], str] | None = None
    service: Mapping[str, Any] = field(default_factory=dict)


KNOWN: Final = (
    KnownImage(
        name="etcd",
        pattern="etcd",
        port=2379,
        workload=REGISTERS,
        client="assay.workloads.systems.etcd_registers.EtcdRegisters",
        patience=1.0,
        folder="/var/lib/etcd",
        folder_is_default=False,
        folder_options=("--data-dir", "-data-dir"),
        folder_variable="ETCD_DATA_DIR",
        files=("member/wal/0*.wal",),
        service={
            "command": [
                "etcd",
                "--data-dir=/var/lib/etcd",
                "--listen-client-urls=http://0.0.0.0:2379",
                "--advertise-client-urls=http://0.0.0.0:2379",
            ]
        },
    ),
    KnownImage(
        name="redis",
        pattern="redis|redis-stack(-server)?|valkey(-bundle)?",
        port=6379,
        workload=SETS,
        client="assay.workloads.systems.redis_elements.RedisElements",
        patience=1.0,
        folder="/data",
        folder_options=("--dir",),
        files=("appendonlydir/*.incr.aof", "appendonly.aof"),
        account={"password": (("--requirepass", "REDIS_PASSWORD", "VALKEY_PASSWORD"), "")},
        durable_by=(
            ("--appendonly", "--appendfsync", "REDIS_AOF_ENABLED", "VALKEY_AOF_ENABLED"),
            "without `--appendonly yes` it loses acknowledged elements at a kill, and the test fails",
        ),
        service={"command": ["redis-server", "--appendonly", "yes"]},
    ),
    KnownImage(
        name="postgresql",
        pattern="postgres|postgresql|postgis|timescaledb|pgvector",
        port=5432,
        workload=LISTS,
        client="assay.workloads.systems.postgresql_client.PostgresqlClient",
        patience=4.0,
        folder="/var/lib/postgresql/data",
        folder_variable="PGDATA",
        account={
            "user": (("POSTGRES_USER", "POSTGRESQL_USERNAME"), "postgres"),
            "password": (("POSTGRES_PASSWORD", "POSTGRESQL_PASSWORD"), ""),
            "database": (("POSTGRES_DB", "POSTGRESQL_DATABASE", "POSTGRES_USER"), "postgres"),
        },
        driver="psycopg",
        extra="postgresql",
        service={"environment": {"POSTGRES_PASSWORD": "assay"}},
    ),
)


def parse_image_name(image: str) -> str:
    """Returns the last part of an image's name, without registry, tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def find_known(image: str) -> KnownImage | None:
    """Returns the row of an image's name, or None."""
    name = parse_image_name(image)
    return next((known for known in KNOWN if re.fullmatch(known.pattern, name)), None)


def find_setting(container: Container, names: Sequence[str]) -> str | None:
    """Returns the first of some options (with a leading ``-``) and variables that a container has."""
    words = [*(container.entrypoint or ()), *(container.command or ())]
    for name in names:
        found = next(_find_option(words, name), None) if name.startswith("-") else container.environment.get(name)
        if found:
            return found
    return None


def find_account(known: KnownImage, container: Container) -> dict[str, str]:
    """Returns the attributes of the client that differ from the image's defaults."""
    found = {name: find_setting(container, names) for name, (names, _) in known.account.items()}
    return {name: value for name, value in found.items() if value and value != known.account[name][1]}


def find_risk(known: KnownImage, container: Container) -> str | None:
    """Returns what happens because no option or variable makes the data durable, or None."""
    if known.durable_by is None or find_setting(container, known.durable_by[0]) is not None:
        return None
    return known.durable_by[1]


def _find_option(words: Sequence[str], option: str) -> Iterator[str]:
    """Yields the values of an option of a command: ``--option=value`` or ``--option value``."""
    for number, word in enumerate(words):
        if word == option and number + 1 < len(words):
            yield words[number + 1]
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")


def find_data_folder(known: KnownImage, container: Container) -> tuple[str, bool] | None:
    """Returns the folder of a container's data, and whether it is this one exactly, and not one above.

    The command counts before a variable, and a variable before the volumes. None means that the folder is unknown.
    """
    found = find_setting(container, (*known.folder_options, known.folder_variable))
    if found is not None and found.startswith("/"):
        return found, True
    volumes = [path.rstrip("/") for path in (*container.volumes, *container.copied)]
    above = [path for path in volumes if f"{known.folder}/".startswith(f"{path}/")]
    if known.folder_is_default and (above or not volumes):
        return known.folder, True
    return next(((path, False) for path in (*above, *volumes)), None)
