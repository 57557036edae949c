"""Through which node a client reaches the system: known where it asked its endpoint for one address and no other.

A client that asks for the addresses of other servers may be connected to any of them, and its effects have to say which
``node`` answered. One whose driver finds other servers by itself may have left the one that it was given: this is where
it was sent, and what a reader of a finding looks at first.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from assay.harness.core.client import Endpoint

OTHERS: Final = frozenset(("all", "zookeeper", "roles"))
"""Of an endpoint: where other servers are."""


class Observed(Endpoint):
    """An endpoint as clients get it, of one worker for a whole run. ``others``: one has asked for other addresses."""

    others: bool = False

    @classmethod
    def of(cls, endpoint: Endpoint) -> Observed:
        return cls(**{one.name: getattr(endpoint, one.name) for one in fields(endpoint)})

    @property
    def plain(self) -> Endpoint:
        """The same, to be sent to where it is observed again."""
        return Endpoint(**{one.name: object.__getattribute__(self, one.name) for one in fields(Endpoint)})

    def ask_for_others(self) -> None:
        object.__setattr__(self, "others", True)

    def __getattribute__(self, name: str) -> Any:
        if name in OTHERS:
            object.__setattr__(self, "others", True)
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return repr(self.plain)

    def __eq__(self, other: object) -> bool:
        mine = self.plain
        return bool(mine == (other.plain if isinstance(other, Observed) else other))

    __hash__ = None  # type: ignore[assignment]  # as an endpoint, which has mappings
