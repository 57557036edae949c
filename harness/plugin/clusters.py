"""Prerequisites of each kind of cluster before a session, and removal of leftovers of dead sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, TypeVar

from assay.harness.core.printable import to_encodable
from assay.harness.plugin.options import Options
from assay.harness.run.settings import ATTACH, DOCKER, NONE, ONCE, SIM, SettingsError

if TYPE_CHECKING:
    from assay.cluster.system import System
    from assay.nemesis.schedule.catalogue import FaultCatalogue

Test = TypeVar("Test")

DOCKER_SECONDS: Final = 10.0
"""Time limit for an answer of the Docker engine."""


def check_cluster(options: Options) -> None:
    """Checks the cluster before anything is built. Raises ``SettingsError``."""
    if options.cluster == DOCKER:
        _check_docker()
    if options.cluster == ATTACH:
        _check_attached(options)
    if options.settings.hosts is not None:
        _check_hosts(str(options.cluster), options.settings.hosts)


def check_temporary_folder(store: Path, basetemp: str | None) -> None:
    """Raises ``SettingsError`` if the store is in the folder of ``--basetemp``, whose content pytest deletes."""
    if not basetemp:
        return
    folder, store = Path(basetemp).resolve(), store.resolve()
    if folder == store or folder in store.parents:
        raise SettingsError(
            f"--store={store} is in the folder of --basetemp={folder}, and pytest deletes what is there: name another "
            "folder for one of them"
        )


def check_writable(store: Path) -> str | None:
    """Returns an error if the store is not writable, else None. Leaves no files there."""
    if to_encodable(str(store)) != str(store):
        return (
            f"--store={to_encodable(str(store))} is not UTF-8, and Parquet files cannot be there: name another folder"
        )
    try:
        missing = [folder for folder in (store, *store.parents) if not folder.exists()]
        store.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=store).close()
        with contextlib.suppress(OSError):  # raised if another session has started a run there in the meantime
            for folder in missing:
                folder.rmdir()
    except OSError as error:
        return f"--store={store} cannot be written ({error.strerror}): name another folder"
    return None


def describe_far_engine() -> str | None:
    """Names the Docker engine if it is not reached by a socket of this machine, because its answers take seconds."""
    from assay.cluster.docker_endpoint import EndpointError, resolve_endpoint

    with contextlib.suppress(EndpointError):
        endpoint = resolve_endpoint()
        return None if endpoint.scheme == "unix" else str(endpoint)
    return None


def sweep_leftovers(cluster: str) -> str:
    """Removes leftovers of dead sessions from the Docker engine and from hosts.

    Returns a text for the header. For an attached cluster, which is not swept, the text warns of earlier data.
    """
    if cluster == SIM:
        return ""
    if cluster == ATTACH:
        return "; data that it already holds counts as data of this run (docs/guide/hosts.md)"
    from assay.cluster.leftovers import sweep

    report = sweep()
    places = ", ".join(f"{many} on {place}" for place, many in sorted(report.places.items()))
    lines = [f"leftovers of dead sessions removed: {places}"] if places else []
    lines += [f"not removed: {line}" for line in (*report.failed, *(one.summarize() for one in report.unreached))]
    return "".join(f"; {line}" for line in lines)


def find_refusals(
    cluster: str,
    tests: Mapping[Test, tuple[Collection[str], System]],
    faults: FaultCatalogue,
    note: Callable[[str], None],
) -> dict[Test, dict[str, str]]:
    """Returns, for each test with faults that this cluster cannot inject, the reason by fault.

    ``tests``: the faults of each test, and its system. ``note``: gets a line about each examination that takes a while.
    """
    from assay.harness.run.cluster_abilities import examine_cluster

    names = {name for wanted, _ in tests.values() for name in wanted if name in faults}
    abilities = examine_cluster(cluster, [faults[name] for name in sorted(names)], note)
    refused: dict[Test, dict[str, str]] = {}
    for test, (wanted, system) in tests.items():
        for name in names.intersection(wanted):
            if (reason := abilities.explain_refusal(faults[name], system)) is not None:
                refused.setdefault(test, {})[name] = reason
    return refused


def _check_attached(options: Options) -> None:
    """Rejects options that would change the nodes, because an attached cluster cannot apply them."""
    if set(",".join(options.nemesis).split(",")) - {NONE, ""} or options.settings.replay is not None:
        raise SettingsError(
            "--cluster=attach has no faults, because only the addresses of its nodes are known: "
            "leave out --nemesis, or name the machines to --cluster=ssh"
        )
    if options.settings.configuration or options.settings.defect or options.workload_mix:
        raise SettingsError(
            "--cluster=attach takes the cluster as it is: leave out --set, --defect and --workload-mix, whose settings "
            "its nodes would not have"
        )
    if options.repeat != ONCE:
        raise SettingsError("--cluster=attach runs a test once: data of one run would look like violations in the next")


def _check_docker() -> None:
    from assay.cluster.docker.engine import DockerEngineError, open_docker

    try:
        with open_docker(timeout=DOCKER_SECONDS):
            pass
    except DockerEngineError as error:
        raise SettingsError(f"--cluster=docker: {error}; without Docker: --cluster=sim") from None


def _check_hosts(cluster: str, hosts: Path) -> None:
    from assay.cluster.hosts import inventory

    try:
        if cluster == ATTACH:
            inventory.read_addresses(str(hosts))
        else:
            inventory.read_inventory(hosts)
    except inventory.InventoryError as error:
        raise SettingsError(f"--cluster={cluster}: {error}") from None
