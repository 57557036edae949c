"""What a kind of cluster needs before a session begins, and what dead sessions have left there."""

from pathlib import Path
from typing import Final

from assay.harness.run.settings import DOCKER, SIM, SettingsError

ENGINE_SECONDS: Final = 10.0


def check(cluster: str | None, hosts: Path | None) -> None:
    """Before anything is built. Raises ``SettingsError``."""
    if cluster == DOCKER:
        _check_engine()
    if hosts is not None:
        _check_hosts(hosts)


def sweep(cluster: str) -> str:
    """Removes what dead sessions have left on the engine and on hosts; returns what that did, for the announcement."""
    if cluster == SIM:
        return ""
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


def _check_hosts(path: Path) -> None:
    from assay.cluster.hosts import inventory

    try:
        inventory.read(path)
    except inventory.InventoryError as error:
        raise SettingsError(f"--cluster=ssh: {error}") from None
