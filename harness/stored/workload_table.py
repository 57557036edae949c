"""Workloads of Jepsen and Maelstrom that ``assay check --workload`` judges, as one table.

Each row says what the original checker asks, and who answers here: checks in SQL (``effects``), a check of its own
(``check``) or the search by a model (``model``). The module imports nothing heavy, because the command line parser
reads it.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from assay.harness.core.printable import join_some

LINEARIZABLE: Final = "--linearizable"
TOTAL: Final = "--total"
NEGATIVE_BALANCES: Final = "--negative-balances"
REAL_TIME: Final = "--real-time"
CAS_REFUSALS: Final = "--cas-refusals"
INITIAL: Final = "--initial"
LEVEL: Final = "--level"
ALL_READS: Final = "--all-reads"
CERTIFICATE: Final = "--certificate"


@dataclass(frozen=True)
class Workload:
    """A workload, with the question of its original checker."""

    name: str
    asks: str
    """A sentence for the list of workloads."""
    operations: str
    """The operations and their values, for the guide."""
    effects: str | None = None
    """The key of ``EFFECT_MAKERS``, if checks in SQL judge it."""
    check: str | None = None
    """The name of a check in ``checkers.workload_checks``, if that judges it."""
    model: str | None = None
    """The model, if a search judges it."""
    allowed: Mapping[str, str] | None = None
    """Anomalies that the original checker does not look for, each with the reason. ``--linearizable`` forbids them."""
    always_allowed: Mapping[str, str] = field(default_factory=dict)
    """Anomalies that are allowed even with ``--linearizable``, each with the reason."""
    allowed_clause: str = ""
    """A clause for the output: what is allowed by default."""
    linearizable_clause: str = ""
    """A clause for the output: what ``--linearizable`` also asks. Empty: there is no such option."""
    linearizable_model: str | None = None
    """The model of ``--linearizable``."""
    verbs: Mapping[str, str] | None = None
    """The names of operations in the model, if they differ from the workload's."""
    level: str | None = None
    """The default isolation level of transactions. None: without ``--level``, the anomalies of the checks count."""
    uses_time: bool = True
    """Whether the checks read real time even if it is not asked for."""
    has_vectors: bool = False
    """Whether a vector of two is a plain value, and not a key with its value, unless ``--keys=tuples`` is given."""
    has_lists: bool = False
    """Whether the objects of transactions are lists, and no registers."""
    options: tuple[str, ...] = ()
    """Options that apply to the workload."""

    def accepts(self, option: str) -> bool:
        return option in self.options or (option == LINEARIZABLE and bool(self.linearizable_clause))


_STALE: Final = "Jepsen's checker allows stale reads unless it is asked for linearizability"
_FULL_SET: Final = {"set-vanished": _STALE, "set-stale": _STALE}
_SET_ALLOWS: Final = "a read may lack an element for a while, if the last read that could show it does"
_SET_ASKS: Final = "every read shows the set at some moment of its call"


def _make_full_set(name: str, asks: str, operations: str, verbs: Mapping[str, str] | None = None) -> Workload:
    return Workload(
        name, asks, operations, effects="set-full", allowed_clause=_SET_ALLOWS, linearizable_clause=_SET_ASKS,
        linearizable_model="set", verbs=verbs,
    )  # fmt: skip


_TXN_ORDER: Final = (REAL_TIME, LEVEL, CERTIFICATE)

TABLE: Final = (
    Workload(
        "set",
        "The final read shows every acknowledged element, and no element that no one added.",
        "`:add` of an element, `:read` of all elements",
        effects="set",
        allowed_clause="only the last read counts",
        linearizable_clause=_SET_ASKS,
        linearizable_model="set",
    ),
    _make_full_set(
        "set-full",
        "No acknowledged or shown element is lost for good.",
        "`:add` of an element, `:read` of all elements",
    ),
    _make_full_set("g-set", "As set-full, for Maelstrom's grow-only set.", "as set-full"),
    _make_full_set(
        "broadcast",
        "As set-full: every message that was broadcast reaches the last reads.",
        "`:broadcast` of a message, `:read` of all messages",
        {"broadcast": "add"},
    ),
    Workload(
        "lost-updates",
        "Each key's final read shows every element whose update succeeded.",
        "`:add` of an element to a key's set, `:read` of the set",
        effects="set",
        allowed_clause="only the last read of each key counts",
        linearizable_clause=_SET_ASKS,
        linearizable_model="set",
    ),
    Workload(
        "counter",
        "Each read lies between the sum of the certain and the sum of the possible adds.",
        "`:add` of a whole number, `:read` of the sum",
        check="counter",
        allowed_clause="each read is judged by itself",
        linearizable_clause="one order explains all reads and adds",
        linearizable_model="tally",
    ),
    Workload(
        "g-counter",
        "Each final read is the sum of all certain adds and of some adds of unknown outcome.",
        "as pn-counter",
        check="final-sum",
        allowed_clause="only final reads count",
        linearizable_clause="one order explains all reads and adds",
        linearizable_model="tally",
    ),
    Workload(
        "pn-counter",
        "As g-counter, with negative numbers.",
        "`:add` of a whole number, `:read` of the sum; `:final? true` marks final reads",
        check="final-sum",
        allowed_clause="only final reads count",
        linearizable_clause="one order explains all reads and adds",
        linearizable_model="tally",
    ),
    Workload(
        "queue",
        "Every dequeued element was enqueued, and no more often dequeued than enqueued.",
        "`:enqueue` of an element, `:dequeue`, `:drain` of all elements",
        effects="queue",
        allowed_clause="elements may stay inside, and may come out in any order",
        always_allowed={"queue-lost": "the queue need not be drained"},
        linearizable_clause="elements leave in the order in which they came (FIFO)",
        linearizable_model="fifo-queue",
    ),
    Workload(
        "total-queue",
        "Every acknowledged element is dequeued by the end, and every dequeued element was enqueued.",
        "as queue; the file ends with a complete drain",
        effects="total-queue",
        allowed_clause="elements may come out twice, and in any order",
        allowed={"queue-duplicate": "Jepsen's total-queue counts duplicates, but allows them"},
        linearizable_clause="elements come out once, and a dequeue finds the queue empty only if it was empty",
    ),
    Workload(
        "kafka",
        "No message of a log is lost, skipped, repeated or moved, and logs agree on their offsets.",
        "`:send`, `:poll`, `:txn` of `[:send k v]` and `[:poll]`; `:assign` and `:subscribe` of keys",
        check="kafka",
        has_vectors=True,
        allowed_clause="offsets may have gaps, transactions may interleave, and after a subscribe polls may skip or go "
        "back",
        linearizable_clause="the sends of an operation do not interleave with those of others, and one order of all "
        "operations agrees with their times and offsets",
    ),
    Workload(
        "list-append",
        "Transactions of appends and reads of lists have a serial order.",
        "`:txn` of `[:append k v]` and `[:r k nil]`",
        effects="transactions",
        uses_time=False,
        has_vectors=True,
        has_lists=True,
        options=(*_TXN_ORDER, ALL_READS),
    ),
    Workload(
        "append",
        "Another name of list-append.",
        "as list-append",
        effects="transactions",
        uses_time=False,
        has_vectors=True,
        has_lists=True,
        options=(*_TXN_ORDER, ALL_READS),
    ),
    Workload(
        "rw-register",
        "Transactions of writes and reads of registers have a serial order.",
        "`:txn` of `[:w k v]` and `[:r k nil]`",
        effects="transactions",
        level="serializable",
        uses_time=False,
        has_vectors=True,
        options=(*_TXN_ORDER, ALL_READS, INITIAL),
    ),
    Workload(
        "long-fork",
        "Reads of several keys see the writes in one order.",
        "`:txn` (or `:read`, `:write`) of `[[:w k v]]` or `[[:r k nil] ...]`",
        effects="transactions",
        uses_time=False,
        has_vectors=True,
        options=_TXN_ORDER,
    ),
    Workload(
        "register",
        "Reads, writes and compare-and-sets of each register are linearizable.",
        "`:read`, `:write` of a value, `:cas` of `[from to]`; values may be `[key value]`",
        model="cas-register",
        options=(CAS_REFUSALS, INITIAL),
    ),
    Workload(
        "cas-register",
        "Another name of register.",
        "as register",
        model="cas-register",
        options=(CAS_REFUSALS, INITIAL),
    ),
    Workload(
        "lin-kv",
        "As register, for Maelstrom's linearizable key-value store.",
        "as register",
        model="cas-register",
        options=(CAS_REFUSALS, INITIAL),
    ),
    Workload(
        "multi-register",
        "Transactions of reads and writes of several registers are linearizable.",
        "`:txn` (or `:read`, `:write`) of `[:r k nil]` and `[:w k v]`",
        model="multi-register",
        allowed_clause="a read of nil proves nothing",
        has_vectors=True,
    ),
    Workload(
        "mutex",
        "A lock is held by at most one process at a time; any process may release it.",
        "`:acquire`, `:release`",
        model="mutex",
    ),
    Workload(
        "locks",
        "A lock is held by at most one process at a time, and only its owner may release it.",
        "`:acquire`, `:release`",
        model="owner-mutex",
    ),
    Workload(
        "bank",
        "Reads of all accounts show the constant total, and no negative balance.",
        "`:read`, a map of account to balance (or a vector); `:transfer` of `{:from a, :to b, :amount n}`",
        effects="bank",
        allowed_clause="a read may show the balances of another moment, and transfers that the file lacks",
        allowed={"bank-unaccounted": "Jepsen's checker compares only totals"},
        linearizable_clause="every read shows what transfers had left at some moment of its call",
        options=(TOTAL, NEGATIVE_BALANCES),
    ),
    Workload(
        "unique-ids",
        "No id is generated twice.",
        "`:generate`, which returns the new id",
        effects="unique-ids",
        uses_time=False,
    ),
    Workload(
        "monotonic",
        "No process sees a value fall, and all see increments in one order.",
        "`:read` and `:inc` (or `:add`), a map of counter to number, or one number",
        effects="monotonic",
        uses_time=False,
        options=(REAL_TIME,),
    ),
    Workload(
        "monotonic-rows",
        "The last read shows every inserted row once, and rows with later times have higher values.",
        "`:add`, which returns a row `{:val n, :sts time}`, and `:read` of all rows; `:proc` may name the process",
        check="rows",
        uses_time=False,
        allowed_clause="rows of different processes may be in any order, if the rows name their process",
        linearizable_clause="rows with later times have higher values, whatever process inserted them",
    ),
    Workload(
        "causal",
        "Each register's operations appear in the causal order in which they were issued.",
        "`:read-init`, `:write` of 1, 2, ..., `:read`; `:position` and `:link` are used if there",
        check="causal",
    ),
    Workload(
        "causal-reverse",
        "A read that shows a write shows every write that was acknowledged before its call, and no write that failed.",
        "`:write` of a value, `:read` of all values",
        check="causal-reverse",
    ),
    Workload(
        "comments",
        "As causal-reverse, with a key for each series of comments.",
        "as causal-reverse",
        check="causal-reverse",
    ),
    Workload(
        "sequential",
        "A read never shows a later insert of a series without an earlier one.",
        "`:write` of a series, `:read` of `[series [last ... first]]`",
        check="sequential",
        uses_time=False,
        has_vectors=True,
    ),
    Workload(
        "adya-g2",
        "Of two inserts that exclude each other by a predicate, at most one succeeds.",
        "`:insert` of `[key [a-id b-id]]`, one of the ids nil",
        check="g2",
        uses_time=False,
    ),
    Workload("g2", "Another name of adya-g2.", "as adya-g2", check="g2", uses_time=False),
    Workload(
        "dirty-reads",
        "No read shows a value whose write failed, or which no final read confirms.",
        "`:write` of a value, `:read` of rows; or `:read` of a value and `:strong-read` of all",
        check="dirty-reads",
        uses_time=False,
    ),
)

BY_NAME: Final[Mapping[str, Workload]] = {one.name: one for one in TABLE}


def describe_workloads() -> str:
    """Returns the list of ``--workload=help``: a line for each workload, with its options."""
    width = max(map(len, BY_NAME))
    lines = ["workloads of Jepsen and Maelstrom (--workload=NAME), and the question of the original checker:"]
    for one in TABLE:
        options = [*one.options, *([LINEARIZABLE] if one.linearizable_clause else [])]
        text = f"{one.asks}{f' [{chr(44).join(options)}]' if options else ''}"
        lines += textwrap.wrap(
            text, 118, initial_indent=f"  {one.name:<{width}}  ", subsequent_indent=" " * (width + 4),
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    lines.append("--linearizable asks for more; the output says what was asked and what was allowed.")
    return "\n".join(lines)


def list_accepting(option: str) -> str:
    """Returns the names of the workloads that have an option, for an error."""
    return join_some([one.name for one in TABLE if one.accepts(option)], len(TABLE))
