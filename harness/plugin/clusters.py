"""What a kind of cluster needs before a session begins, and what dead sessions have left there."""

import contextlib
import os
from pathlib import Path
from typing import Final

from assay.harness.plugin.options import Options
from assay.harness.run.settings import ATTACH, DOCKER, NONE, ONCE, SIM, SettingsError

ENGINE_SECONDS: Final = 10.0


def check(options: Options) -> None:
    """Before anything is built. Raises ``SettingsError``."""
    if options.cluster == DOCKER:
        _check_engine()
    if options.cluster == ATTACH:
        _check_attached(options)
    if options.settings.hosts is not None:
        _check_hosts(str(options.cluster), options.settings.hosts)


def unwritable(store: Path) -> str | None:
    """Writes into the folder of runs, and leaves nothing there. Returns why that is not possible, or None if it is."""
    missing = [folder for folder in (store, *store.parents) if not folder.exists()]
    probe = store / f".{os.getpid()}.probe"
    try:
        store.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
        with contextlib.suppress(OSError):  # another session has a run there by now
            for folder in missing:
                folder.rmdir()
    except OSError as error:
        return f"--store={store} cannot be written ({error.strerror}): name another folder"
    return None


def sweep(cluster: str) -> str:
    """Removes what dead sessions have left on the engine and on hosts; returns what there is to say, for the header."""
    if cluster == SIM:
        return ""
    if cluster == ATTACH:
        return "; what it holds already counts as this run's (docs/guide/hosts.md)"
    from assay.cluster.leftovers import sweep

    report = sweep()
    lines = [f"{len(report.undone)} things of dead sessions removed"] if report.undone else []
    lines += [f"not removed: {line}" for line in report.failed]
    return "".join(f"; {line}" for line in lines)


def _check_attached(options: Options) -> None:
    """What would change the nodes is not done there, and a run must not be judged as if it had been."""
    if set(",".join(options.nemesis).split(",")) - {NONE, ""} or options.settings.replay is not None:
        raise SettingsError(
            "--cluster=attach has no faults: nothing can be done to nodes of which only the address is known; "
            "leave out --nemesis, or give the machines to --cluster=ssh"
        )
    if options.settings.configuration or options.settings.defect or options.workload_mix:
        raise SettingsError(
            "--cluster=attach takes the cluster as it is: leave out --set, --defect and --workload-mix, whose settings "
            "its nodes would not have"
        )
    if options.repeat != ONCE:
        raise SettingsError("--cluster=attach does a run once: what it has written would be held against the next one")


def _check_engine() -> None:
    from assay.cluster.docker.engine import EngineError, engine

    try:
        with engine(timeout=ENGINE_SECONDS):
            pass
    except EngineError as error:
        raise SettingsError(f"--cluster=docker: {error}; without Docker: --cluster=sim") from None


def _check_hosts(cluster: str, hosts: Path) -> None:
    from assay.cluster.hosts import inventory

    try:
        if cluster == ATTACH:
            inventory.addresses(str(hosts))
        else:
            inventory.read(hosts)
    except inventory.InventoryError as error:
        raise SettingsError(f"--cluster={cluster}: {error}") from None
