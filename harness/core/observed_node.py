"""Detects the node that a client talks to: it is known only if the client read no address except its own node's.

A client that reads the addresses of other servers may be connected to any of them. Its effects must then say which
``node`` answered. A driver that discovers servers by itself may also talk to another node, so the detected node is only
a hint for the reader of a finding.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from assay.harness.core.client import Endpoint

OTHER_ADDRESS_FIELDS: Final = frozenset(("all", "zookeeper", "roles"))
"""Fields of an endpoint with the addresses of other servers."""


class ObservedEndpoint(Endpoint):
    """The endpoint that all clients of one worker get.

    ``has_read_others``: whether one of these clients has read other nodes' addresses.
    """

    has_read_others: bool = False

    @classmethod
    def of_endpoint(cls, endpoint: Endpoint) -> ObservedEndpoint:
        return cls(**{one.name: getattr(endpoint, one.name) for one in fields(endpoint)})

    @property
    def plain(self) -> Endpoint:
        """Returns a plain ``Endpoint``, which can be sent to another process and observed there."""
        return Endpoint(**{one.name: object.__getattribute__(self, one.name) for one in fields(Endpoint)})

    def note_read_others(self) -> None:
        """Records that a client has read other nodes' addresses."""
        object.__setattr__(self, "has_read_others", True)

    def __getattribute__(self, name: str) -> Any:
        if name in OTHER_ADDRESS_FIELDS:
            self.note_read_others()
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return repr(self.plain)

    def __eq__(self, other: object) -> bool:
        mine = self.plain
        return bool(mine == (other.plain if isinstance(other, ObservedEndpoint) else other))

    __hash__ = None  # type: ignore[assignment]  # like Endpoint, which has mappings
