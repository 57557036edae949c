"""The isolation levels: one row each, with the formula that a history must satisfy.

A level is a *rule*, which its transactions must keep, and a *declared order*: none, the order of each session, or real
time. A level forbids some value anomalies too, which need no order: garbage reads, aborted and intermediate reads.

Notation of the formulas: ``T`` and ``U`` are transactions, ``R`` read the version of ``x`` that ``W`` wrote, and
another transaction ``V`` wrote ``x`` as well. ``<`` is the order that the level asks for. ``wr`` leads from ``W`` to
``R``. ``D`` is the declared order.

Sources: A. Adya, *Weak Consistency*, MIT 1999 (PL-1, PL-2, PL-2.99, PL-3, snapshot isolation); R. Biswas and C. Enea,
*On the Complexity of Checking Transactional Consistency*, OOPSLA 2019 (the axioms of read committed, read atomic and
causal convergence); K. Daudjee and K. Salem, *Lazy Database Replication with Snapshot Isolation*, VLDB 2006 (strong
and strong session snapshot isolation).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

GARBAGE_READ: Final = "garbage-read"
ABORTED_READ: Final = "G1a"
INTERMEDIATE_READ: Final = "G1b"
INTERNAL: Final = "internal"
INCOMPATIBLE_ORDER: Final = "incompatible-order"
DUPLICATE_ELEMENTS: Final = "duplicate-elements"
VALUE_ANOMALIES: Final = (
    GARBAGE_READ, ABORTED_READ, INTERMEDIATE_READ, INTERNAL, INCOMPATIBLE_ORDER, DUPLICATE_ELEMENTS,
)  # fmt: skip
"""Anomalies of single reads and writes. A read saw a value that no one wrote, of a failed write, or of a write that its
transaction overwrote. A transaction contradicts its own writes. Reads of a list disagree on its order. A list shows an
element twice.
"""
CYCLE_CLASSES: Final = ("G0", "G1c", "G-single", "G-nonadjacent", "G2-item")
"""Classes of cycles. The strongest class comes first: a level that rules out a class also rules out all stronger ones.
"""
G0, G1C, G_SINGLE, G_NONADJACENT, G2_ITEM = range(len(CYCLE_CLASSES))
"""The *rank* of each class: its index in ``CYCLE_CLASSES``."""
_ALWAYS: Final = frozenset({GARBAGE_READ, INCOMPATIBLE_ORDER, DUPLICATE_ELEMENTS})
_COMMITTED: Final = _ALWAYS | {ABORTED_READ, INTERMEDIATE_READ}


class Rule(enum.StrEnum):
    """The condition of a level, without its declared order."""

    READ_UNCOMMITTED = "read-uncommitted"
    READ_COMMITTED = "read-committed"
    AXIOMATIC_READ_COMMITTED = "axiomatic-read-committed"
    READ_ATOMIC = "read-atomic"
    CAUSAL = "causal"
    REPEATABLE_READ = "repeatable-read"
    SNAPSHOT_ISOLATION = "snapshot-isolation"
    SERIALIZABLE = "serializable"

    @property
    def needs_search(self) -> bool:
        """Whether only a search decides the level: it is NP-complete even with unique values."""
        return self in (Rule.REPEATABLE_READ, Rule.SNAPSHOT_ISOLATION, Rule.SERIALIZABLE)


class Order(enum.StrEnum):
    """The declared order ``D``."""

    NONE = "none"
    SESSION = "session"
    REAL_TIME = "real-time"


ORDER_NAMES: Final = {Order.SESSION: "process", Order.REAL_TIME: "real-time"}
"""The suffixes of anomalies that need an order."""


@dataclass(frozen=True)
class Level:
    """An isolation level. ``meaning``: one clause; ``formula``: the condition in the notation of the module."""

    name: str
    rule: Rule
    order: Order
    meaning: str
    formula: str

    @property
    def forbidden_values(self) -> frozenset[str]:
        """The value anomalies that the level forbids."""
        return _FORBIDDEN_VALUES[self.rule]

    @property
    def orders_sessions(self) -> bool:
        """Whether transactions of one process are ordered, but not transactions of different processes."""
        return self.order is Order.SESSION

    @property
    def orders(self) -> frozenset[Order]:
        """The orders that are in the formula: the declared one, and for causal always that of sessions."""
        always = (Order.SESSION,) if self.rule is Rule.CAUSAL else ()
        return frozenset({self.order, *always} - {Order.NONE})

    @property
    def anomalies(self) -> frozenset[str]:
        """All anomalies that refute the level: values, and cycles without or with the orders of the formula."""
        suffixes = ("", *(f"-{ORDER_NAMES[order]}" for order in self.orders))
        return self.forbidden_values | {name + suffix for name in CYCLE_CLASSES for suffix in suffixes}


_FORBIDDEN_VALUES: Final = {
    rule: _ALWAYS
    if rule is Rule.READ_UNCOMMITTED
    else _COMMITTED
    if rule is Rule.READ_COMMITTED
    else _COMMITTED | {INTERNAL}
    for rule in Rule
}

_RULES: Final = {
    Rule.READ_UNCOMMITTED: (
        "no two transactions overwrite each other's writes (PL-1)",
        "the order of versions of all objects, with D, has no cycle",
    ),
    Rule.READ_COMMITTED: (
        "no transaction reads aborted or intermediate writes, and information does not flow in a circle (PL-2)",
        "no G1a, no G1b, and wr, the known order of versions, and D have no cycle",
    ),
    Rule.AXIOMATIC_READ_COMMITTED: (
        "each read sees at least what earlier reads of its transaction saw (Biswas and Enea)",
        "wr and D are within <; if R read something of V before it read x of W, then V < W",
    ),
    Rule.READ_ATOMIC: (
        "a transaction sees all writes of another one, or none",
        "wr and D are within <; if (V, R) is in wr or D, then V < W",
    ),
    Rule.CAUSAL: (
        "a transaction sees all that those before it saw, and all agree on one order of writes (causal convergence)",
        "wr, the order of sessions and D are within <; if a path of these leads from V to R, then V < W",
    ),
    Rule.REPEATABLE_READ: (
        "serializable but for predicates (PL-2.99); without predicates in the history it equals serializable",
        "wr and D are within <; either V < W or R < V",
    ),
    Rule.SNAPSHOT_ISOLATION: (
        "each transaction reads one snapshot, and no two that write one object are concurrent",
        "start(T) < commit(T); commit(W) < start(R); commit(V) < commit(W) or start(R) < commit(V); of two writers of "
        "one object one commits before the other starts; commit(T) < start(U) for (T, U) in D",
    ),
    Rule.SERIALIZABLE: (
        "one order of all transactions explains every read",
        "wr and D are within <; either V < W or R < V",
    ),
}
_PREFIXES: Final = {
    Order.NONE: ("", ""),
    Order.SESSION: ("strong-session-", ", and the order respects each session"),
    Order.REAL_TIME: ("strong-", ", and the order respects real time"),
}


def _list_levels() -> tuple[Level, ...]:
    levels = []
    for rule, (meaning, formula) in _RULES.items():
        for order, (prefix, more) in _PREFIXES.items():
            if rule is Rule.CAUSAL and order is Order.SESSION:
                continue  # causal has the order of sessions already
            own_order = Order.SESSION if rule is Rule.CAUSAL and order is Order.NONE else order
            strict = rule is Rule.SERIALIZABLE and order is Order.REAL_TIME
            name = "strict-serializable" if strict else prefix + rule
            levels.append(Level(name, rule, own_order, meaning + more, formula))
    return tuple(levels)


LEVELS: Final[dict[str, Level]] = {level.name: level for level in _list_levels()}
"""Every level by its name, the weakest rule first."""
SERIALIZABLE: Final = LEVELS["serializable"]
ALIASES: Final = {
    "strong-serializable": "strict-serializable",
    "strong-session-causal": "causal",
    "strict-snapshot-isolation": "strong-snapshot-isolation",
}


_LEVEL: Final = "level "


def name_level_check(name: str) -> str:
    """Returns the name of the level's row in the coverage of a judgement: ``level serializable``.

    The row has the number of claims, and how many of them were exposed (``exposure``).
    """
    return f"{_LEVEL}{find_level(name).name}"


def is_level_check(check: str) -> bool:
    """Returns whether this is the name of a level's row in the coverage of a judgement."""
    return check.startswith(_LEVEL)


def find_level(name: str) -> Level:
    """Returns the level. Raises ``ValueError``, which names all levels, for another name."""
    found = LEVELS.get(ALIASES.get(name, name))
    if found is None:
        raise ValueError(f"there is no isolation level {name!r}; there are {', '.join(LEVELS)}")
    return found


def add_real_time(level: Level) -> Level:
    """Returns the level with the same rule whose order respects real time."""
    return next(one for one in LEVELS.values() if one.rule is level.rule and one.order is Order.REAL_TIME)
