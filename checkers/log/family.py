"""The family of log checks: sends return offsets, polls return offsets and values.

How a log workload records itself in ``effects`` (``key`` is ``topic-partition`` throughout):

- A send of k values gives one ``append`` row per value: ``position`` the returned offset (base + rank; null when not
  known), ``value`` the unique number, ``request`` an id of the message set (unique in the run: the operation's index),
  ``sub`` the rank, ``node`` the broker that answered, ``epoch`` its leader epoch if known, ``message_key`` the
  message's key if the topic is compacted, ``outcome`` ok (acknowledged), fail (in every internal retry) or info.
- A poll gives per key ``observe-begin`` (``position`` the fetched offset), then ``observe`` rows (``position``,
  ``value``; a record that cannot be decoded has a null value), then ``observe-end`` (``position`` the next offset to
  read), ``sub`` in this order, ``assignment`` a number that is new after each assignment, seek or reset.
  ``observe-end`` with outcome ok says: these rows are all that this poll found from begin to end. A poll that cannot
  say so leaves ``observe-end`` out, or gives it another outcome.
- ``seek`` and ``reset``: ``position`` the offset sought (resolved, not negative), already under the new assignment.
- ``end``: ``position`` the log end offset that ListOffsets (-1) reported, ``epoch`` the leader epoch if known.
- ``start``: ``position`` the log start offset reported; what lies below is no longer expected to be there.
- The sentinel is an ``append`` of phase sentinel. Polls of the drain have phase drain and go from the earliest offset
  on until they are past the sentinel; then one ``drained`` row says where: ``position`` = the settled end, the
  sentinel's offset + 1.

All checks are sound for sends and polls of every outcome, for values sent again after an indeterminate send, for
unknown offsets, unfinished drains and gaps in raw offsets. Known misses: the order of records inside a poll that did
not end ok, and between the polls before and after such a poll if it showed any record.
"""

from __future__ import annotations

from typing import Final

from assay.checkers.check import Family
from assay.checkers.log.integrity import ABORTED_READ, DUPLICATE, INCONSISTENT_OFFSET, PHANTOM
from assay.checkers.log.loss import LOST_WRITE, UNSEEN, VANISHED
from assay.checkers.log.order import HIGH_WATERMARK_REGRESSION, NONMONOTONIC_SEND, REAL_TIME_ORDER, SEND_SKIP
from assay.checkers.log.polls import NONMONOTONIC_POLL, POLL_SKIP, POLL_VIEWS
from assay.checkers.log.views import LOG_VIEWS

LOG: Final = Family(
    name="log",
    views=(*LOG_VIEWS, *POLL_VIEWS),
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
)

LOG_ANOMALIES: Final = LOG.anomalies
"""Everything that these checks can report, in the order of the definitions."""
