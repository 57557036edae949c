"""Topics of one name, one after the other, have keys of their own in the history's events."""

from __future__ import annotations

from assay.harness.run.event_logs import Lives


def test_lives_of_a_topic_are_numbered_as_they_are_heard_of() -> None:
    lives = Lives()
    heard = [("orders-0", 40), ("orders-1", 40), ("bills-0", 41), ("orders-0", 77), ("orders-0", 40), ("orders-2", 77)]
    assert [lives.key(*one) for one in heard] == [
        "orders-0", "orders-1", "bills-0", "orders#2-0", "orders-0", "orders#2-2",
    ]  # fmt: skip


def test_one_that_was_missed_is_none_of_those_that_were_counted() -> None:
    lives = Lives()
    assert [lives.key("orders-0", life) for life in (40, 90, 77, 95)] == [
        "orders-0", "orders#2-0", "orders#0-0", "orders#3-0",
    ]  # fmt: skip


def test_what_says_no_topic_stays_as_it_is() -> None:
    lives = Lives()
    assert [lives.key(None, None), lives.key("workers", None), lives.key(None, 5)] == [None, "workers", None]
