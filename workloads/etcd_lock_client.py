"""A set that lies in one key of etcd, changed by reading and writing it under etcd's lock (its v3lock API).

The lock is held by a lease, which ends when its client has not been heard of for ``LEASE`` seconds. A client that
sleeps meanwhile does not know, and writes. ``fenced``: it writes only if its lock is there still, which etcd looks at
in the same transaction; then it may sleep as long as it likes.
"""

import json
import time
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.workloads import sets
from assay.workloads.etcd_gateway import TROUBLE, ask, text

LEASE: Final = 2
"""Seconds."""
THINKS: Final = 0.05
"""Seconds between the read and the write."""
PATIENCE: Final = 2.5
"""Seconds for which a client waits for the lock."""
FENCED: Final = "fenced"


class LockedSet:
    """Asks its own member."""

    blocking = True

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.address, self.fenced = endpoint.address, FENCED in endpoint.options
        self._read()

    def invoke(self, operation: Operation) -> Completion:
        lease = None
        try:
            if operation.f == sets.READ:
                return Completion(Outcome.OK, self._read())
            lease = ask(self.address, "lease/grant", TTL=LEASE)["ID"]
            lock = ask(self.address, "lock/lock", seconds=PATIENCE, name=text("lock"), lease=lease)["key"]
            elements = [*self._read(), operation.argument]
            time.sleep(THINKS)
        except TROUBLE as error:
            return Completion(Outcome.FAIL, error=type(error).__name__)
        else:
            return self._write(elements, lock)
        finally:
            if lease is not None:
                with suppress(*TROUBLE):
                    ask(self.address, "lease/revoke", ID=lease)

    def _read(self) -> list[int]:
        found = ask(self.address, "kv/range", key=text(sets.KEY)).get("kvs")
        return list(json.loads(b64decode(found[0]["value"]))) if found else []

    def _write(self, elements: list[int], lock: str) -> Completion:
        """``lock`` is a key that etcd made for this holder, and deletes with its lease."""
        there = [{"key": lock, "target": "CREATE", "result": "GREATER", "createRevision": 0}] if self.fenced else []
        put = {"requestPut": {"key": text(sets.KEY), "value": text(json.dumps(elements))}}
        try:
            done = ask(self.address, "kv/txn", compare=there, success=[put]).get("succeeded", False)
        except TROUBLE as error:
            return Completion(Outcome.INFO, error=type(error).__name__)
        return Completion(Outcome.OK) if done else Completion(Outcome.FAIL, error="lock-lost")

    def close(self) -> None:
        """Each request has a connection of its own."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return sets.effects(completed)
