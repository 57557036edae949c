"""What an anomaly's name means, in one line for a reader who meets it for the first time.

The definitions proper, which are finer, are the checks'. A name that is not here is shown without explanation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "inconsistent-offset": "one offset of a partition was seen with two different values",
        "duplicate": "one value sits at two or more offsets",
        "aborted-read": "a value was read although its write had certainly failed",
        "phantom": "a value was read that nobody wrote",
        "lost-write": "an acknowledged value is gone, and nobody ever read it",
        "unflushed-loss": "an acknowledged value went when all servers lost power before it was flushed",
        "vanished": "a value was read once, and is gone",
        "unseen": "an acknowledged value was not delivered by the deadline",
        "real-time-order": "an operation took effect before another that had already ended when it began",
        "nonmonotonic-send": "the offsets of one process's sends fall",
        "send-skip": "the values of one message set are not consecutive",
        "nonmonotonic-poll": "the offsets that one consumer read go back",
        "poll-skip": "a consumer jumped over a record that was there",
        "high-watermark-regression": "the reported end of a log went back",
        "replica-divergence": "replicas hold different records below their high watermark",
        "no-recovery": "after a fault was healed, service did not come back within the deadline",
        "missing-writer": "a value was read that nobody wrote",
        "future-read": "a value was read before it was written",
        "stale-read": "an old value was read after a newer one was in place",
        "lost-update": "two conditional writes both replaced the same value",
        "G0": "two transactions wrote over each other's writes",
        "G1a": "a transaction read what one had written that certainly failed",
        "G1b": "a transaction read what another wrote over before it ended",
        "G1c": "transactions saw or overwrote each other in a circle",
        "G-single": "a transaction saw some of another's writes, or of later ones, and missed some",
        "G-nonadjacent": "transactions saw others' writes in orders that no sequence of snapshots has",
        "G2-item": "transactions each missed what another of them wrote, in a circle",
        "garbage-read": "a transaction read a value that none wrote",
        "internal": "a transaction's reads contradict its own writes",
        "duplicate-elements": "a list was read with one element twice",
        "incompatible-order": "a list was read in two orders that contradict each other",
        "double-ownership": "two owners held the same thing at once",
        "zombie-commit": "a member of an earlier generation could still commit",
        "generation-reuse": "one generation has two different assignments",
        "offset-regression": "a group's offset went back, or was lost",
        "fencing-violation": "an operation was accepted under a token that had been superseded",
        "two-leaders": "two nodes accepted writes in one leader epoch",
        "two-controllers": "two nodes held one controller epoch",
        "stale-epoch-obeyed": "a node obeyed an epoch after it had obeyed a higher one",
        "orphaned-partition": "a partition had no owner for longer than the deadline",
    }
)
