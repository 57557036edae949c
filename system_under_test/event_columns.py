"""Meanings of ``key``, ``position``, ``value`` and ``owner`` for each event in a broker's event log.

The generated reference page of the history has this table. A test compares it with the calls that emit the events. No
broker imports this module. An empty text means that the event does not have the column.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class EventColumns(NamedTuple):
    """Meanings in Markdown."""

    key: str = ""
    position: str = ""
    value: str = ""
    owner: str = ""


EVENT_COLUMNS: Final[Mapping[str, EventColumns]] = {
    "became-leader": EventColumns(key="partition", position="where its log ended then"),
    "became-follower": EventColumns(key="partition", value="the leader's number"),
    "first-append-in-epoch": EventColumns(key="partition", position="the first offset of the epoch"),
    "reconciled": EventColumns(
        key="partition", position="its log's end, from where it fetches", value="the leader's number"
    ),
    "high-watermark": EventColumns(key="partition"),
    "isr-proposed": EventColumns(key="partition", value="the size of the proposed in-sync set"),
    "isr-change": EventColumns(
        key="partition", position="the log end of a replica that joins", value="the size of the in-sync set"
    ),
    "isr-superseded": EventColumns(
        key="partition",
        value="the epoch in which another broker has written the state; null if the state does not exist",
    ),
    "truncated": EventColumns(
        key="partition", position="the log's end after the truncation", value="the log's end before it"
    ),
    "recovered": EventColumns(key="partition", position="the log's end", value="how many bytes were cut off"),
    "replica-offline": EventColumns(key="partition"),
    "log-damaged": EventColumns(key="partition", position="the offset of the damage"),
    "log-rolled": EventColumns(key="partition", position="the first offset of the new segment"),
    "segment-deleted": EventColumns(
        key="partition", position="the log's start before the deletion", value="how many segments"
    ),
    "log-start": EventColumns(key="partition", position="the log's start"),
    "log-cleaned": EventColumns(
        key="partition", position="the offset below which it is clean", value="the number of messages left below it"
    ),
    "log-end-answered": EventColumns(
        key="partition",
        position="the log end in the answer to the controller; -1: the replica may not lead",
        value="the last epoch in its log",
    ),
    "topic-configured": EventColumns(key="topic"),
    "checkpoint-damaged": EventColumns(),
    "registered": EventColumns(value="the broker's number"),
    "session-lost": EventColumns(),
    "request-obeyed": EventColumns(value="the controller's number"),
    "request-fenced": EventColumns(value="the controller epoch that the node knows"),
    "shutdown-began": EventColumns(value="how many partitions it leads"),
    "shutdown-handed-over": EventColumns(value="how many partitions it still leads"),
    "became-controller": EventColumns(value="the broker's number"),
    "resigned-controller": EventColumns(),
    "partition-state-read, partition-state-written": EventColumns(
        key="partition", value="the leader's number, -1: none"
    ),
    "partition-transition, replica-transition": EventColumns(key="partition"),
    "assignment-written, reassignment-ended": EventColumns(key="partition"),
    "groups-loaded": EventColumns(key="partition", value="how many groups; a `fingerprint` of them in `detail`"),
    "group-preparing, group-forgotten": EventColumns(key="group"),
    "group-partly-called, group-partly-joined, group-partly-assigned": EventColumns(
        key="group", owner="the first member that was asked, joined or got its assignment"
    ),
    "group-joined, group-member-removed": EventColumns(key="group", owner="the member"),
    "group-generation, group-assigned": EventColumns(key="group", value="how many members"),
    "offset-commit": EventColumns(key="group", owner="the member; empty: none"),
    "offsets-expired": EventColumns(key="group", value="how many offsets"),
    "draft-displaced": EventColumns(value="the partition of the offsets topic whose groups the coordinator had"),
    "draft-loaded": EventColumns(value="how many groups"),
    "draft-change": EventColumns(key="group", owner="the member that joined or left, if any"),
    "draft-generation, draft-steady": EventColumns(key="group", value="how many members"),
    "draft-notified, draft-joined, draft-answered": EventColumns(
        key="group", value="the number of members still missing", owner="the member"
    ),
}
"""By event; events with equal columns are named together, with commas between."""
