"""Traffic of correct stores of lists and of registers: transactions of a few micro-operations on random keys.

Transactions take effect in slot order, so they are strictly serializable. A transaction of unknown outcome takes effect
as a whole or not at all. Lists are replaced from time to time (``ReplacedKeys``). The n-th element of a list is a
function of n.
"""

import abc
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.transactions import TRANSACTION
from assay.harness.synthetic import rows, segments
from assay.harness.synthetic.anomaly_template import Opening, Scene
from assay.harness.synthetic.plan import Plan
from assay.harness.synthetic.segments import Flags, Ints
from assay.harness.synthetic.state import LatestValues, ReplacedKeys
from assay.harness.synthetic.traffic import ChunkEffects, DrawnChunk, Traffic
from assay.harness.synthetic.txn_scenes import build_txn_scene
from assay.harness.synthetic.values import UNLANDED, compute_values_at

MOST_MICROS: Final = 4
"""Maximum number of micro-operations of a transaction."""
WRITES: Final = 0.5
LIFE: Final = 16
"""Average number of transactions per list, which gives it some twenty elements."""
EMPTY: Final = 0
"""The initial value of a register, in the arrays. No write has it."""


@dataclass(frozen=True)
class MicroOperations:
    """The micro-operations of a chunk, as arrays ordered by transaction."""

    op: Ints
    """Place of the transaction in the chunk."""
    rank: Ints
    """Place in the transaction."""
    key: Ints
    writes: Flags
    landed: Flags
    known: Flags
    """Whether this is a read with a known result."""


class TxnTraffic(Traffic):
    """Base class of the two kinds of stores."""

    verbs = (TRANSACTION,)
    weights = (1.0,)
    lists: ClassVar[bool]

    def build_anomaly(self, anomaly: str, at: Opening) -> Scene:
        return build_txn_scene(anomaly, at, lists=self.lists)

    def generate_effects(self, block: DrawnChunk) -> ChunkEffects:
        slots, rng = block.slots, self.rng
        many = np.where(block.keep, rng.integers(1, MOST_MICROS + 1, len(slots.index)), 0)
        op, rank = segments.expand_ranks(np.arange(len(many)), many)
        writes = rng.random(len(op)) < WRITES
        key = rng.integers(0, self.plan.keys, len(op))
        micros = MicroOperations(op, rank, key, writes, block.landed[op], ~writes & slots.ok[op])
        names, parts, written, seen = self.perform(block, micros)
        asked = _to_json_micros(self.lists, names, written, micros.writes, pa.scalar("null"))
        texts = _to_json_micros(self.lists, names, written, micros.writes, seen)
        return ChunkEffects(
            verb=np.zeros_like(many),
            # A transaction has no key of its own, but ``_play`` needs the key of a scene.
            key=rows.DictionaryColumn(np.where(block.opening, block.key, -1), self.names),
            parts=parts,
            argument=_join_micros(asked, many, block.keep),
            result=pc.if_else(slots.ok[block.keep], _join_micros(texts, many, block.keep), rows.NONE),
        )

    @abc.abstractmethod
    def perform(
        self, block: DrawnChunk, micros: MicroOperations
    ) -> tuple[rows.DictionaryColumn, list[rows.Part], Ints, pa.Array]:
        """Returns key names, effects, and per micro-operation the written value and the read value (JSON)."""


class TxnListTraffic(TxnTraffic):
    model = "txn"
    bulk = 4
    lists = True

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._lives = ReplacedKeys(self.names, LIFE)

    def perform(
        self, block: DrawnChunk, micros: MicroOperations
    ) -> tuple[rows.DictionaryColumn, list[rows.Part], Ints, pa.Array]:
        index = block.slots.index
        key = self._lives.enter(index)[micros.op] + micros.key
        names = rows.DictionaryColumn(key, self._lives.names)
        count = self._lives.follow(key, (micros.writes & micros.landed).astype(np.int64))
        value = np.where(
            micros.landed, compute_values_at(count), UNLANDED + index[micros.op] * MOST_MICROS + micros.rank
        )
        # A read of an empty list has one row, without an index.
        height = np.where(micros.known, np.maximum(count, 1), micros.writes).astype(np.int64)
        sub = _sum_before(height, micros.rank)
        appends, reads = np.flatnonzero(micros.writes), np.flatnonzero(micros.known)
        shown, place = segments.expand_ranks(reads, height[reads])
        there = count[shown] > 0
        parts = [
            rows.Part("txn-append", micros.op[appends], names.at(appends), {"value": value[appends]}, sub=sub[appends]),
            rows.Part("txn-read", micros.op[shown], names.at(shown), {
                "list_index": rows.MaskedColumn(place, there), "value": rows.MaskedColumn(compute_values_at(place),
                there),
            }, sub=sub[shown] + place),
        ]  # fmt: skip
        return names, parts, value, rows.to_json_prefixes(count, micros.known)


class TxnRegisterTraffic(TxnTraffic):
    model = "txn-register"
    lists = False

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._registers = LatestValues(plan.keys, EMPTY)

    def perform(
        self, block: DrawnChunk, micros: MicroOperations
    ) -> tuple[rows.DictionaryColumn, list[rows.Part], Ints, pa.Array]:
        names = rows.DictionaryColumn(micros.key, self.names)
        value = block.slots.index[micros.op] * MOST_MICROS + micros.rank + 1
        current, _ = self._registers.follow(micros.key, micros.writes & micros.landed, value)
        sub = _sum_before((micros.writes | micros.known).astype(np.int64), micros.rank)
        writes, reads = np.flatnonzero(micros.writes), np.flatnonzero(micros.known)
        parts = [
            rows.Part("txn-write", micros.op[writes], names.at(writes), {"value": value[writes]}, sub=sub[writes]),
            rows.Part("txn-read", micros.op[reads], names.at(reads), {
                "value": rows.MaskedColumn(current[reads], current[reads] != EMPTY),
            }, sub=sub[reads]),
        ]  # fmt: skip
        return names, parts, value, rows.to_json_numbers(current, micros.known & (current != EMPTY))


def _sum_before(height: Ints, rank: Ints) -> Ints:
    """Returns the sum of the heights of the preceding micro-operations of the transaction."""
    return segments.compute_running_sum(height, rank == 0) - height


def _to_json_micros(
    lists: bool, names: rows.DictionaryColumn, written: Ints, writes: Flags, seen: pa.Array | pa.Scalar
) -> pa.Array:
    """Returns each micro-operation as JSON. ``seen``: the third element of a read."""
    word = pc.if_else(writes, '["append","' if lists else '["w","', '["r","')
    third = pc.if_else(writes, rows.to_json_numbers(written), seen)
    return pc.binary_join_element_wise(word, names.texts(), '",', third, "]", "")


def _join_micros(texts: pa.Array, many: Ints, keep: Flags) -> pa.Array:
    """Returns the JSON list of each transaction of ``keep``."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(many)]).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",").filter(pa.array(keep))
    return pc.binary_join_element_wise("[", joined, "]", "")
