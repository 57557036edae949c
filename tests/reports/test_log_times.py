"""The time that a line says itself, as other people's software writes it; and lines that say none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.reports.log_times import parse_line

ABOUT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
SERVES = "INFO serves"
EARLIEST, LATEST = (datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (2002, 2038))


@pytest.mark.parametrize(
    ("line", "after", "words"),
    [
        ("2026-01-02T03:04:06.250Z INFO serves", 1.25, SERVES),
        ("2026-01-02 03:04:06,250 INFO serves", 1.25, SERVES),
        ("2026-01-02T05:04:06.250+02:00 INFO serves", 1.25, SERVES),
        ("2026-01-01 22:04:06.250-0500 INFO serves", 1.25, SERVES),
        ("[2026-01-02 03:04:06,250] INFO serves (kafka.server)", 1.25, "INFO serves (kafka.server)"),
        ("2026-01-02 03:04:06.250 UTC [31] LOG:  ready", 1.25, "[31] LOG:  ready"),
        ("2026-01-02 03:04:06.250123+00:00 [info] <0.9.0> ready", 1.250123, "[info] <0.9.0> ready"),
        ("2026-01-02  3:04:06 0 [Note] mariadbd: ready", 1.0, "0 [Note] mariadbd: ready"),
        ("2026/01/02 03:04:06 serves", 1.0, "serves"),
        ("[417] 2026/01/02 03:04:06.250000 [INF] Server is ready", 1.25, "417 [INF] Server is ready"),
        ("417:M 02 Jan 2026 03:04:06.250 * Ready to accept connections", 1.25, "417:M * Ready to accept connections"),
        ("02-Jan-2026 03:04:06.250 INFO serves", 1.25, SERVES),
        ("I0102 03:04:06.250000   417 main.go:9] ready", 1.25, "I 417 main.go:9] ready"),
        ("Jan  2 03:04:06 n1 etcd[417]: ready", 1.0, "n1 etcd[417]: ready"),
        ("<34>1 2026-01-02T03:04:06.250Z n1 etcd 417 - - ready", 1.25, "n1 etcd 417 - - ready"),
        ("[Fri Jan 02 03:04:06.250 2026] [core:notice] ready", 1.25, "[core:notice] ready"),
        ("time=2026-01-02T03:04:06.250Z level=INFO msg=ready", 1.25, "level=INFO msg=ready"),
        ('time="2026-01-02T03:04:06Z" level=info msg="ready"', 1.0, 'level=info msg="ready"'),
        ("1767323046.25 serves", 1.25, "serves"),
        ("1767323046250 serves", 1.25, "serves"),
        ("[1767323046] serves", 1.0, "serves"),
        ('{"level":"info","ts":"2026-01-02T03:04:06.250Z","msg":"ready","raft":7}', 1.25, "INFO ready raft=7"),
        ('{"ts":1767323046.25,"msg":"ready","level":"warn"}', 1.25, "WARN ready"),
        ('{"timestamp":1767323046250000000,"message":"ready"}', 1.25, "ready"),
        ('{"t":{"$date":"2026-01-02T03:04:06.250+00:00"},"s":"I","msg":"ready"}', 1.25, "I ready"),
    ],
)
def test_a_line_is_placed_by_the_time_that_it_says(line: str, after: float, words: str) -> None:
    time, text = parse_line(line, ABOUT)
    assert time == pytest.approx(ABOUT + after, abs=1e-6)
    assert text == words


@pytest.mark.parametrize(
    "line",
    [
        "",
        "serves",
        "  File broker.py, line 17, in 2026-01-02 03:04:06",
        "created at 2026-01-02 03:04:06",
        "2026-99-99 03:04:06,250 x",
        "I0199 03:04:06.250000 x",
        "17673 connections",
        "12345678901 is no time",
        "192.168.10.12 03:04:06",
        '{"msg":"no time"}',
        '{"ts":"later","msg":"x"}',
        '{"ts":true}',
        "{broken",
        '{"ts":' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_what_says_no_time_of_its_own_is_left_as_it_is(line: str) -> None:
    assert parse_line(line, ABOUT) == (None, line)


def test_the_year_that_is_not_said_is_the_one_nearest_to_the_run() -> None:
    new_year = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp()
    assert parse_line("Dec 31 23:59:59 n1 x", new_year)[0] == new_year - 2
    assert parse_line("Jan  1 00:00:02 n1 x", new_year - 3)[0] == new_year + 1


@given(st.datetimes(EARLIEST, LATEST), st.text(alphabet=st.characters(exclude_characters="\n")))
def test_whatever_comes_after_a_time_it_is_found(moment: datetime, words: str) -> None:
    moment = moment.replace(tzinfo=UTC)
    for line in (f"{moment:%Y-%m-%d %H:%M:%S.%f} {words}", f"9:S {moment:%d %b %Y %H:%M:%S.%f} {words}"):
        assert parse_line(line, ABOUT)[0] == pytest.approx(moment.timestamp(), abs=1e-6)


@given(st.text())
def test_nothing_that_a_system_says_is_an_error(line: str) -> None:
    assert parse_line(line, ABOUT)[1] or not line


@pytest.mark.parametrize("mark", list("[('\""))
def test_a_line_of_brackets_takes_time_in_proportion_to_its_length(mark: str) -> None:
    """The time limit of tests ends one that takes the square: some minutes."""
    assert parse_line(mark * 100_000, ABOUT)[0] is None
