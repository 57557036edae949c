"""Client of a set in one etcd key, changed by read and write under etcd's lock (the v3lock API).

The lock belongs to a lease, which expires if its client is silent for ``LEASE`` seconds. A client that is paused for
longer does not notice that it lost the lock, and writes, unless it is ``fenced``.

A lease is granted before the wait for the lock, and may expire during the wait. etcd 3.4 grants the lock even then. So
the client renews the lease after the wait, and only then counts the lock as acquired.
"""

import json
from base64 import b64decode
from contextlib import suppress
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.workloads.generic import locks, sets
from assay.workloads.systems.etcd_gateway import TROUBLE, ask, encode_text

LEASE: Final = 2
"""Time to live of a lease, in seconds."""
PATIENCE: Final = 2.5
"""Maximum wait for the lock, in seconds."""
FENCED: Final = "fenced"


class LeaseEnded(OSError):
    """The lease expired during the wait for the lock, so that another client may hold the lock."""


class EtcdLockedSet(locks.LockedSet):
    """Client of the etcd member at its endpoint."""

    errors = TROUBLE

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.address, self.fenced = endpoint.address, FENCED in endpoint.options
        self.load()

    def acquire(self) -> tuple[str, str]:
        """Returns the lease, and the key that etcd created for this holder and deletes with the lease."""
        lease = str(ask(self.address, "lease/grant", TTL=LEASE)["ID"])
        try:
            key = ask(self.address, "lock/lock", seconds=PATIENCE, name=encode_text("lock"), lease=lease)["key"]
            if "TTL" not in ask(self.address, "lease/keepalive", ID=lease)["result"]:
                raise LeaseEnded
            return lease, key
        except BaseException:
            with suppress(*TROUBLE):
                self.release((lease, ""))
            raise

    def release(self, lock: tuple[str, str]) -> None:
        ask(self.address, "lease/revoke", ID=lock[0])

    def load(self) -> list[int]:
        found = ask(self.address, "kv/range", key=encode_text(sets.KEY)).get("kvs")
        return list(json.loads(b64decode(found[0]["value"]))) if found else []

    def store(self, elements: list[int], lock: tuple[str, str] | None) -> bool:
        # The creation revision of a missing key is 0, so this condition holds while the holder's key exists.
        compare = [{"key": lock[1], "target": "CREATE", "result": "GREATER", "createRevision": 0}] if lock else []
        put = {"requestPut": {"key": encode_text(sets.KEY), "value": encode_text(json.dumps(elements))}}
        return bool(ask(self.address, "kv/txn", compare=compare, success=[put]).get("succeeded", False))

    def close(self) -> None:
        """Does nothing: each request has a connection of its own."""
