from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core.history.schema import SCHEMAS
from assay.system_under_test.events import Columns, EventLog

OUR_OWN = {"broker", "incarnation", "seq", "event", "time"}
"""Fields that the log adds to each line. ``topic_zxid`` becomes part of the history's ``key``."""


def test_a_line_may_say_what_the_history_has_columns_for_and_nothing_else() -> None:
    columns = {*SCHEMAS["events"].names} - {"node"} | {"broker", "topic_zxid"}
    assert {*Columns.__annotations__} | OUR_OWN == columns


NAMES = st.sampled_from(["became-leader", "isr-change", "registered"])
KEYS = st.none() | st.sampled_from(["orders-0", "orders-1"])


def log(story: list[str], hold_at: list[str], orders: list[str]) -> EventLog:
    def write(line: str) -> None:
        story.append(json.loads(line)["event"])

    return EventLog(write, lambda: story.append("held"), hold_at, lambda: 1.0, 1, 7, lambda: orders)


@given(NAMES, KEYS, NAMES, KEYS)
def test_it_holds_right_after_the_event_that_was_ordered_and_no_other(
    event: str, key: str | None, ordered: str, about: str | None
) -> None:
    story: list[str] = []
    log(story, [], [ordered if about is None else f"{ordered} {about}"]).emit(event, key=key)
    meant = event == ordered and about in (None, key)
    assert story == ([event, "held"] if meant else [event])


def test_orders_come_and_go_while_it_runs_and_those_of_the_start_stay() -> None:
    story: list[str] = []
    orders: list[str] = []
    events = log(story, ["registered"], orders)
    events.emit("isr-change")
    orders.append("isr-change")
    events.emit("isr-change")
    orders.clear()
    events.emit("isr-change")
    events.emit("registered")
    assert story == ["isr-change", "isr-change", "held", "isr-change", "registered", "held"]
