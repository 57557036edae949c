"""Checks whether a Spark master is reachable. Spark itself tries an unreachable one for minutes, without output."""

import socket
from contextlib import closing
from typing import Final

from assay.checkers.engine.base import EngineUnavailable

STANDALONE: Final = "spark://"
"""Prefix of masters whose addresses are known: ``spark://host:port,host:port``."""
PORT: Final = "7077"
ANSWER_WITHIN: Final = 3.0
"""Seconds for all of the addresses together."""


def require_reachable(master: str | None) -> None:
    """Raises :class:`EngineUnavailable` for a standalone master if no address of it accepts a connection."""
    if master is None or not master.startswith(STANDALONE):
        return
    errors = []
    addresses = master.removeprefix(STANDALONE).split(",")
    for address in addresses:
        host, _, port = address.rpartition(":") if ":" in address else (address, "", PORT)
        try:
            with closing(socket.create_connection((host, int(port)), ANSWER_WITHIN / len(addresses))):
                return
        except (OSError, ValueError, OverflowError) as error:
            errors.append(f"{address}: {error}")
    raise EngineUnavailable(
        f"no Spark master answers at {master} ({'; '.join(errors)}); start one, or leave out --spark-master to run "
        "Spark on this machine alone"
    )
