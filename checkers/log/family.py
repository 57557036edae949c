"""The families of log checks: sends return offsets, polls return offsets and values.

How a log workload records itself in ``effects`` (``key`` is ``topic-partition`` throughout):

- A send of k values gives one ``append`` row per value: ``position`` the returned offset (base + rank; null when not
  known), ``value`` the unique number, ``request`` an id of the message set (unique in the run: the operation's index),
  ``sub`` the rank, ``node`` the broker that answered, ``leader_epoch`` if known, ``message_key`` the message's
  key if the topic is compacted, ``tombstone`` if it is one, ``outcome`` ok (acknowledged), fail (in every internal
  retry) or info.
- A poll gives per key ``observe-begin`` (``position`` the fetched offset), then ``observe`` rows (``position``,
  ``value``; a record that cannot be decoded has a null value), then ``observe-end`` (``position`` the next offset to
  read), ``sub`` in this order, ``assignment`` a number that is new after each assignment, seek or reset.
  ``observe-end`` with outcome ok says: these rows are all that this poll found from begin to end. A poll that cannot
  say so leaves ``observe-end`` out, or gives it another outcome.
- ``seek`` and ``reset``: ``position`` the offset sought (resolved, not negative), already under the new assignment.
- ``end``: ``position`` the log end offset that ListOffsets (-1) reported, ``leader_epoch`` if known.
- ``start``: ``position`` the log start offset reported; what lies below is no longer expected to be there.
- The sentinel is an ``append`` of phase sentinel. Polls of the drain have phase drain and go from the earliest offset
  on until they are past the sentinel; then one ``drained`` row says where: ``position`` = the settled end, the
  sentinel's offset + 1.

The family ``statements`` holds what clients said of a log against each other. It also reads ``message_key``,
``timestamp`` and ``size`` of records, ``node``, ``leader_epoch`` and ``incarnation`` of a ``start``, and

- ``look-up``: ``timestamp`` the time asked for, ``position`` the answer (null: there is none), with the meaning that
  it has in version 1 of ListOffsets.
- ``out-of-range``: a fetch at ``position`` was answered that it is not in the log.
- ``waited``: how long a fetch at the log's end waited; see ``waits``.
- ``setting``: ``key`` the topic, ``name`` retention.ms or retention.bytes, ``value`` (-1: no limit; null: the default).
- ``topic-create``: ``key`` the topic, with its incarnation.

A send that asked for no acknowledgement is info, however its client calls it.

All checks are sound for sends and polls of every outcome, for values sent again after an indeterminate send, for
unknown offsets, unfinished drains and gaps in raw offsets. Known misses: the order of records inside a poll that did
not end ok, and between the polls before and after such a poll if it showed any record.
"""

from typing import Final

from assay.checkers.check import Family, Prepared
from assay.checkers.log.altered import ALTERED_RECORD, RESURRECTED
from assay.checkers.log.bounds import ANSWER_BEYOND_LOG, LOOK_UP_ORDER
from assay.checkers.log.ends import END_TOO_LOW, ENDS, HIGH_WATERMARK_REGRESSION
from assay.checkers.log.integrity import ABORTED_READ, DUPLICATE, INCONSISTENT_OFFSET, PHANTOM
from assay.checkers.log.long_poll import UNTIMELY_ANSWER
from assay.checkers.log.loss import LOST_WRITE, MISPLACED_ACK, UNSEEN, VANISHED
from assay.checkers.log.offset_by_time import TIME_LOOK_UP
from assay.checkers.log.order import NONMONOTONIC_SEND, REAL_TIME_ORDER, SEND_SKIP
from assay.checkers.log.poll_order import NONMONOTONIC_POLL, POLL_SKIP, POLL_VIEWS
from assay.checkers.log.positions import MOVES, OFFSET_HOLE, POSITION_JUMP, POSITIONS
from assay.checkers.log.rejected_sends import FALSE_OUT_OF_RANGE
from assay.checkers.log.reports import CONTRADICTED_OUTCOME
from assay.checkers.log.retention import FORBIDDEN_DELETION, LIMITS, LOG_START_REGRESSION, OBEYED, REPORTS
from assay.checkers.log.stuck import FAULTS, STUCK_READER
from assay.checkers.log.views import LOG_VIEWS, SENDS, SETTLED
from assay.checkers.log.wrong_partition import UNSENT

LOG_TABLES: Final = tuple(view for view in (*LOG_VIEWS, *POLL_VIEWS, ENDS, UNSENT) if view not in (SENDS, SETTLED))
STATEMENT_TABLES: Final = (MOVES, POSITIONS, REPORTS, FAULTS, OBEYED, LIMITS)


# A history without a log is judged without its tables: each costs Spark a tenth of a second, however empty.
LOG: Final = Family(
    name="log",
    views=(SENDS, SETTLED),  # others read them, of any history
    prepare=Prepared(LOG_TABLES),
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
    prepare=Prepared(STATEMENT_TABLES),
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
"""It reads the views of ``LOG``, and comes after it."""

REPORTED: Final = Family(name="reported", checks=(CONTRADICTED_OUTCOME,), applies=LOG.applies, by_key=True)
"""What a producer says of its messages besides their outcomes; most say nothing."""

LOG_ANOMALIES: Final = (*LOG.anomalies, *STATEMENTS.anomalies, *REPORTED.anomalies)
"""Everything that these checks can report, in the order of the definitions."""
