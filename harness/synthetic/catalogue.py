"""Kinds of synthetic objects and their anomalies, listed without importing the modules that make them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ObjectKind:
    """A kind of object."""

    title: str
    """The words before "history" in messages: ``a log`` history."""
    about: str
    """The operations of its histories."""
    anomalies: tuple[str, ...]


CATALOGUE: Final[Mapping[str, ObjectKind]] = {
    "log": ObjectKind(
        "a log",
        "sends, polls and looks at the end of partitions; sentinel, drain; event logs of nodes, ends of replicas",
        (
            "inconsistent-offset", "duplicate", "aborted-read", "phantom", "lost-write", "vanished", "unseen",
            "real-time-order", "nonmonotonic-send", "send-skip", "nonmonotonic-poll", "poll-skip",
            "high-watermark-regression", "two-leaders", "two-controllers", "stale-epoch-obeyed", "replica-divergence",
        ),
    ),
    "register": ObjectKind(
        "a register",
        "reads, writes and CAS operations, some of which fail",
        ("missing-writer", "future-read", "stale-read", "lost-update"),
    ),
    "group": ObjectKind(
        "a group",
        "members that share partitions, read them and commit; generations; sentinel and drain at the end",
        ("zombie-commit", "double-ownership", "fencing-violation", "generation-reuse", "orphaned-partition"),
    ),
    "offsets": ObjectKind(
        "an offsets",
        "commits and fetches of groups that rewind, and of groups that only move forward",
        ("missing-writer", "future-read", "stale-read", "offset-regression"),
    ),
    "lease": ObjectKind(
        "a lease",
        "acquire, renew and release with fencing tokens; operations guarded by a token; a stale token is rejected, and "
        "its holder then reports the lease as lost",
        ("fencing-violation", "double-ownership"),
    ),
    "txn": ObjectKind(
        "a transactional",
        "transactions of one to four appends to lists, and reads of them; a new list begins after forty uses",
        (
            "G0", "G1a", "G1b", "G1c", "G-single", "G-nonadjacent", "G2-item", "garbage-read", "internal",
            "duplicate-elements", "incompatible-order",
        ),
    ),
    "txn-register": ObjectKind(
        "a transactional",
        "transactions of one to four writes and reads of registers",
        ("G1a", "G1b", "G1c", "G-single", "G-nonadjacent", "G2-item", "garbage-read", "internal"),
    ),
    "queue": ObjectKind(
        "a queue",
        "enqueue and dequeue; what is left is dequeued at the end",
        ("queue-lost", "queue-duplicate", "queue-phantom"),
    ),
    "set": ObjectKind(
        "a set",
        "adds and reads of all elements; a new set begins after about fifty elements",
        ("set-lost", "set-stale", "set-vanished", "set-phantom"),
    ),
    "max-register": ObjectKind(
        "a max register",
        "writes, and reads of the largest value written so far",
        ("max-phantom", "max-order"),
    ),
    "counter": ObjectKind(
        "a counter",
        "fetch-and-add(1) and reads",
        ("counter-duplicate", "counter-order", "counter-phantom"),
    ),
    "bank": ObjectKind(
        "a bank",
        "transfers between the accounts of banks, and reads of all accounts of one",
        ("bank-total", "bank-negative", "bank-unaccounted"),
    ),
    "unique-ids": ObjectKind(
        "a unique-ids",
        "ids that are generated, each once",
        ("id-duplicate",),
    ),
    "monotonic": ObjectKind(
        "a monotonic",
        "adds to pairs of counters that only grow, and reads of both of a pair",
        ("nonmonotonic-read", "monotonic-cycle"),
    ),
}  # fmt: skip
"""The kinds of objects, by the name that ``assay generate`` takes."""
