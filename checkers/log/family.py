"""The families of log checks.

A log workload records itself in ``effects`` as follows (``key`` is always ``topic-partition``):

- A send of k values gives one ``append`` row per value:

  - ``position``: the returned offset (base + rank; null if unknown). ``value``: the unique number.
  - ``request``: an id of the message set, unique in the run (the operation's index). ``sub``: the rank.
  - ``node``: the broker that answered. ``leader_epoch``: if known.
  - ``message_key``: the message's key if the topic is compacted. ``tombstone``: whether the message is one.
  - ``outcome``: ok (acknowledged), fail (only if every attempt of the client certainly failed) or info.
- A poll gives these rows per key, with ``sub`` in this order:

  - ``observe-begin``: ``position`` is the fetched offset.
  - ``observe``: ``position`` and ``value``; a record that cannot be decoded has a null value.
  - ``observe-end``: ``position`` is the next offset to read. Outcome ok means that these rows are all that the poll
    found from begin to end. A poll that cannot guarantee this omits the row or gives it another outcome.

  ``assignment`` is a number that is new after each assignment, seek or reset.
- ``seek`` and ``reset``: ``position`` is the new position (an offset, not negative). The row has the new ``assignment``
  number already.
- ``end``: ``position`` is the log end offset that ListOffsets (-1) reported, ``leader_epoch`` is given if known.
- ``start``: ``position`` is the log start offset reported. Records below it are no longer expected.
- The sentinel, the last record before the drain, is an ``append`` of phase sentinel. Polls of the drain have phase
  drain. They read from the earliest offset until they are past the sentinel. Then the ``position`` of one ``drained``
  row is the settled end: the sentinel's offset + 1.

The family ``statements`` compares clients' statements about a log with each other. It also reads ``message_key``,
``timestamp`` and ``size`` of records, ``node``, ``leader_epoch`` and ``incarnation`` of a ``start``, and these kinds:

- ``look-up``: ``timestamp`` is the requested time, and ``position`` the answer (null: no such offset), as in version 1
  of ListOffsets.
- ``out-of-range``: the answer to a fetch at ``position`` was OFFSET_OUT_OF_RANGE.
- ``waited``: how long a fetch at the log's end waited (``fetches``).
- ``setting``: ``key`` is the topic, ``name`` retention.ms or retention.bytes, ``value`` the limit (-1: none; null: the
  default).
- ``topic-create``: ``key`` is the topic, with its incarnation.

A send that asked for no acknowledgement is info, even if its client reports success.

All checks are sound for every outcome of sends and polls, and for values sent again after a send of unknown outcome.
They are also sound for unknown offsets, unfinished drains and gaps in offsets. They do not judge the order of records
inside a poll that did not end ok. Nor do they judge the order between the polls before and after such a poll, if it
showed a record.
"""

from typing import Final

from assay.checkers.check import Family, PreparedTables
from assay.checkers.log.altered import ALTERED_RECORD, RESURRECTED
from assay.checkers.log.bounds import ANSWER_BEYOND_LOG, LOOK_UP_ORDER
from assay.checkers.log.ends import END_TOO_LOW, ENDS, HIGH_WATERMARK_REGRESSION
from assay.checkers.log.fetches import FALSE_OUT_OF_RANGE, UNTIMELY_ANSWER
from assay.checkers.log.integrity import ABORTED_READ, DUPLICATE, INCONSISTENT_OFFSET, PHANTOM
from assay.checkers.log.loss import LOST_WRITE, MISPLACED_ACK, UNSEEN, VANISHED
from assay.checkers.log.offset_by_time import TIME_LOOK_UP
from assay.checkers.log.order import NONMONOTONIC_SEND, REAL_TIME_ORDER, SEND_SKIP
from assay.checkers.log.poll_order import NONMONOTONIC_POLL, POLL_SKIP, POLL_VIEWS
from assay.checkers.log.positions import OFFSET_HOLE, POSITION_JUMP, POSITION_TABLES
from assay.checkers.log.reports import CONTRADICTED_OUTCOME
from assay.checkers.log.retention import FORBIDDEN_DELETION, LOG_START_REGRESSION, RETENTION_TABLES
from assay.checkers.log.stuck import DISTURBANCES, STUCK_READER
from assay.checkers.log.views import LOG_VIEWS, SENDS, SETTLED
from assay.checkers.log.wrong_partition import UNSENT_VALUES

LOG_TABLES: Final = tuple(
    view for view in (*LOG_VIEWS, *POLL_VIEWS, ENDS, UNSENT_VALUES) if view not in (SENDS, SETTLED)
)
STATEMENT_TABLES: Final = (*POSITION_TABLES, DISTURBANCES, *RETENTION_TABLES)


# These tables are created only for a history with a log, because each costs Spark a tenth of a second, even if empty.
LOG: Final = Family(
    name="log",
    views=(SENDS, SETTLED),  # other families read these views in any history
    prepare=PreparedTables(LOG_TABLES),
    checks=(
        INCONSISTENT_OFFSET,
        DUPLICATE,
        ABORTED_READ,
        PHANTOM,
        LOST_WRITE,
        VANISHED,
        UNSEEN,
        REAL_TIME_ORDER,
        NONMONOTONIC_SEND,
        SEND_SKIP,
        NONMONOTONIC_POLL,
        POLL_SKIP,
        HIGH_WATERMARK_REGRESSION,
    ),
    applies="""
        select count(*) as examined from effect_kinds where kind in ('append', 'observe', 'observe-begin', 'end')
        """,
    by_key=True,
)

STATEMENTS: Final = Family(
    name="statements",
    prepare=PreparedTables(STATEMENT_TABLES),
    checks=(
        MISPLACED_ACK,
        OFFSET_HOLE,
        POSITION_JUMP,
        ALTERED_RECORD,
        LOG_START_REGRESSION,
        FORBIDDEN_DELETION,
        END_TOO_LOW,
        TIME_LOOK_UP,
        LOOK_UP_ORDER,
        ANSWER_BEYOND_LOG,
        RESURRECTED,
        STUCK_READER,
        FALSE_OUT_OF_RANGE,
        UNTIMELY_ANSWER,
    ),
    applies=LOG.applies,
    by_key=True,
)
"""Reads the views of ``LOG`` and must come after it."""

REPORTED: Final = Family(name="reported", checks=(CONTRADICTED_OUTCOME,), applies=LOG.applies, by_key=True)
"""Compares what a producer reported to callbacks and other receivers about a message with the outcome of the send.

Most producers report nothing.
"""

LOG_ANOMALIES: Final = (*LOG.anomalies, *STATEMENTS.anomalies, *REPORTED.anomalies)
"""All anomalies that these families can report, in the order of the definitions."""
