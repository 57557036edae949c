"""Client of registers in etcd, through its JSON gateway. Its contract is ``linearizable("cas-register")``.

The client has no ``effects``, because the search for a legal order needs only arguments and results. ``serializable``
reads may be stale (https://etcd.io/docs/v3.4/learning/api_guarantees/). With them, the search finds no legal order.
"""

from base64 import b64decode
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.workloads.generic.registers import Registers
from assay.workloads.systems.etcd_gateway import TROUBLE, ask, encode_text

SERIALIZABLE_READS: Final = "serializable-reads"
"""Client option: reads are answered by any member from its own data."""


class EtcdRegisters(Registers):
    """Client of the etcd member at its endpoint."""

    errors = TROUBLE

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.address = endpoint.address
        self.how = {"serializable": True} if SERIALIZABLE_READS in endpoint.options else {}
        ask(self.address, "kv/range", key=encode_text("open"))

    def read(self, key: str) -> int | None:
        found = ask(self.address, "kv/range", key=encode_text(key), **self.how).get("kvs")
        return int(b64decode(found[0]["value"])) if found else None

    def write(self, key: str, value: int) -> None:
        ask(self.address, "kv/put", key=encode_text(key), value=encode_text(value))

    def cas(self, key: str, expected: int, new: int) -> bool:
        compare = [{"key": encode_text(key), "target": "VALUE", "value": encode_text(expected)}]
        put = [{"requestPut": {"key": encode_text(key), "value": encode_text(new)}}]
        return bool(ask(self.address, "kv/txn", compare=compare, success=put).get("succeeded", False))

    def close(self) -> None:
        """Does nothing: each request has a connection of its own."""
