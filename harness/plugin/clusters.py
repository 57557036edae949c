"""What a kind of cluster needs before a session begins, and what dead sessions have left there."""

from pathlib import Path
from typing import Final

from assay.harness.run.settings import ATTACH, DOCKER, SIM, SettingsError

ENGINE_SECONDS: Final = 10.0


def check(cluster: str | None, hosts: Path | None, *, faults: bool) -> None:
    """Before anything is built. ``faults``: some are asked for. Raises ``SettingsError``."""
    if cluster == DOCKER:
        _check_engine()
    if cluster == ATTACH and faults:
        raise SettingsError(
            "--cluster=attach has no faults: nothing can be done to nodes of which only the address is known; "
            "leave out --nemesis, or give the machines to --cluster=ssh"
        )
    if hosts is not None:
        _check_hosts(str(cluster), hosts)


def sweep(cluster: str) -> str:
    """Removes what dead sessions have left on the engine and on hosts; returns what there is to say, for the header."""
    if cluster == SIM:
        return ""
    if cluster == ATTACH:
        return "; what it holds already counts as this run's (docs/hosts.md)"
    from assay.cluster.undo import sweep

    report = sweep()
    lines = [f"{len(report.undone)} things of dead sessions removed"] if report.undone else []
    lines += [f"not removed: {line}" for line in report.failed]
    return "".join(f"; {line}" for line in lines)


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
