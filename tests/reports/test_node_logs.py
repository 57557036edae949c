"""Lines of nodes are placed on the run's axis, however they write their times, and their number is bounded."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.history_views import open_history
from assay.harness.core.history import HistoryWriter
from assay.harness.core.timestamps import Origin
from assay.reports import node_logs as module
from assay.reports.history_db import HistoryDatabase
from assay.reports.node_logs import GROWTH, LogLine, TimeSource, read_log, read_node_logs

SECOND = 1_000_000_000
ORIGIN = Origin(loop=100.0, wall=1_767_323_045.0)  # 2026-01-02T03:04:05Z


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-01-02T03:04:06.250Z INFO broker serves", 1.25),
        ("2026-01-02 03:04:06,250 INFO broker serves", 1.25),
        ("2026-01-02T05:04:06.250+0200 INFO broker serves", 1.25),
        ("2026-01-02T05:04:06.250+02:00 INFO broker serves", 1.25),
        ("2026-01-02T03:04:04.999999999Z INFO broker serves", -0.000001),
        (" 101.250000 INFO broker serves", 1.25),
    ],
)
def test_a_line_is_placed_by_its_own_time(tmp_path: Path, line: str, time: float) -> None:
    path = tmp_path / "process.log"
    path.write_text(line + "\n")
    (word,) = read_log(path, "n1", ORIGIN)
    assert word.time == pytest.approx(time * SECOND, abs=1000)
    assert (word.node, word.event, word.text) == ("n1", False, "INFO broker serves")


def test_a_line_of_a_node_whose_clock_was_ahead_is_placed_by_the_right_time(tmp_path: Path) -> None:
    path = tmp_path / "process.log"
    path.write_text("2026-01-02T03:04:06.250Z INFO broker serves\n")
    origin = msgspec.structs.replace(ORIGIN, ahead={"n2": 3600.0, "n3": 1e300})
    for node, time in (("n1", 1.25), ("n2", 1.25 - 3600), ("n3", 1.25)):
        (word,) = read_log(path, node, origin)
        assert word.time == pytest.approx(time * SECOND, abs=1000), node


@pytest.mark.parametrize("line", ["9" * 400 + ".123456 hello", "20261129174512.123456 hello"])
def test_a_huge_number_is_no_time(tmp_path: Path, line: str) -> None:
    path = tmp_path / "process.log"
    path.write_text(line + "\n")
    assert list(read_log(path, "n1", ORIGIN)) == []


def test_a_traceback_belongs_to_the_line_before_it_and_what_comes_first_to_the_line_after_it(tmp_path: Path) -> None:
    path = tmp_path / "process.log"
    path.write_text(
        "booting\n 101.000000 ERROR it broke\nTraceback:\n  File x\n2026-99-99 03:04:06,250 x\n 102.000000 INFO on\n"
    )
    reported = [(word.time, word.text, word.time_source) for word in read_log(path, "n1", ORIGIN)]
    assert reported == [
        (SECOND, "booting", TimeSource.NEIGHBOUR),
        (SECOND, "ERROR it broke\nTraceback:\n  File x\n2026-99-99 03:04:06,250 x", TimeSource.OWN),
        (2 * SECOND, "INFO on", TimeSource.OWN),
    ]


def looked_at(log: Path, *looks: tuple[float, int]) -> None:
    """Moments in seconds of the run, with the size of the log then."""
    known = {log.parent.name: {log.name: [(ORIGIN.loop + moment, size) for moment, size in looks]}}
    (log.parents[1] / GROWTH).write_text(json.dumps(known))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Returns the path of n1's log, which does not exist yet."""
    (tmp_path / "logs" / "n1").mkdir(parents=True)
    return tmp_path / "logs" / "n1" / "process.log"


def test_lines_without_a_time_have_that_by_which_they_had_arrived(log: Path) -> None:
    log.write_text("zwei\neins\nhalf\nlate\n")
    looked_at(log, (0.5, 5), (1.0, 13), (1.5, 15), (2.5, 20))
    reported = [(word.time / SECOND, word.text, word.time_source) for word in read_log(log, "n1", ORIGIN)]
    assert reported == [
        (0.5, "zwei", TimeSource.ARRIVAL),
        (1.0, "eins", TimeSource.ARRIVAL),
        (1.5, "half", TimeSource.ARRIVAL),  # of which the look before had seen three letters
        (2.5, "late", TimeSource.ARRIVAL),
    ]


def test_lines_that_arrived_together_keep_their_order_and_are_lines_of_their_own(tmp_path: Path, log: Path) -> None:
    log.write_text("zwei\neins\n\ndrei\n")
    looked_at(log, (1.0, 16))
    writer = HistoryWriter(tmp_path / "history")
    writer.close()
    with HistoryDatabase(open_history(tmp_path / "history")) as recording:
        found = read_node_logs(recording, tmp_path / "logs", ORIGIN, [])
    assert [(word.time, word.text) for word in found.lines] == [(SECOND, word) for word in ("zwei", "eins", "drei")]
    assert found.timeless == ()


def test_a_line_without_a_time_that_came_later_is_no_part_of_the_one_before_it(log: Path) -> None:
    timed = " 101.000000 INFO on\n"
    log.write_text(f"{timed}  at once\nmuch later\n")
    looked_at(log, (1.2, len(timed) + 10), (9.0, len(timed) + 21))
    reported = [(word.time / SECOND, word.text, word.time_source) for word in read_log(log, "n1", ORIGIN)]
    assert reported == [(1.0, "INFO on\n  at once", TimeSource.OWN), (9.0, "much later", TimeSource.ARRIVAL)]


@pytest.mark.parametrize(
    "growth",
    [
        "{",
        json.dumps({"n1": []}),
        json.dumps({"n1": {"other.log": [(101.0, 9)]}, "n2": {"process.log": [(101.0, 9)]}}),
        json.dumps({"n1": {"process.log": [(101.0, 9), (102.0, 4)]}}),
        json.dumps({"n1": {"process.log": [(1e308, 9)]}}),
    ],
)
def test_of_a_file_about_which_nothing_is_known_the_name_is_given(tmp_path: Path, growth: str) -> None:
    """A file that became shorter was begun again, so no size says anything of its present lines."""
    (tmp_path / "logs" / "n1").mkdir(parents=True)
    (tmp_path / "logs" / "n1" / "process.log").write_text("one\ntwo\n")
    (tmp_path / "logs" / GROWTH).write_text(growth)
    (tmp_path / "logs" / "n1" / "empty.log").write_text("\n")
    writer = HistoryWriter(tmp_path / "history")
    writer.close()
    with HistoryDatabase(open_history(tmp_path / "history")) as recording:
        found = read_node_logs(recording, tmp_path / "logs", ORIGIN, [])
    assert (found.lines, found.timeless) == ((), ("n1/process.log",))


def test_of_a_long_log_places_are_counted_from_its_begin(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write_text("".join(f"line {number}\n" for number in range(10)))
    monkeypatch.setattr(module, "TAIL", 17)
    looked_at(log, (1.0, 63), (2.0, 70))
    reported = [(word.time / SECOND, word.text) for word in read_log(log, "n1", ORIGIN)]
    assert reported == [(1.0, "line 8"), (2.0, "line 9")], "the first of the tail is no whole line"


def test_a_missing_or_a_binary_log_says_nothing(tmp_path: Path) -> None:
    assert list(read_log(tmp_path / "none.log", "n1", ORIGIN)) == []
    (tmp_path / "process.log").write_bytes(bytes(range(256)) * 10)
    assert list(read_log(tmp_path / "process.log", "n1", ORIGIN)) == []


@pytest.fixture
def recording(tmp_path: Path) -> HistoryDatabase:
    writer = HistoryWriter(tmp_path / "history")
    for number in range(20):
        writer.event(time=number * SECOND, node="n2", incarnation=1, seq=number, event="isr-change", key="orders-0",
                     epoch=3, zxid=40 + number, isr=[1, 2], osr=[3], detail={"why": "x"})  # fmt: skip
    writer.close()
    (tmp_path / "logs" / "n1").mkdir(parents=True)
    (tmp_path / "logs" / "n1" / "process.log").write_text(" 105.500000 INFO hello\n")
    return HistoryDatabase(open_history(tmp_path / "history"))


def test_a_log_that_is_a_link_out_of_the_run_is_not_read(tmp_path: Path, recording: HistoryDatabase) -> None:
    run, inside = tmp_path / "run", tmp_path / "run" / "logs" / "n1"
    inside.mkdir(parents=True)
    (inside / "own.log").write_text(" 105.500000 INFO own\n")
    (inside / "linked.log").symlink_to("own.log")
    (inside / "outside.log").symlink_to(tmp_path / "logs" / "n1" / "process.log")
    with recording:
        found = read_node_logs(recording, run / "logs", ORIGIN, [])
    assert [line.text for line in found.lines if not line.event] == ["INFO own", "INFO own"]


def test_events_and_logs_are_one_sequence(tmp_path: Path, recording: HistoryDatabase) -> None:
    with recording:
        found = read_node_logs(recording, tmp_path / "logs", ORIGIN, [])
        without = read_node_logs(recording, tmp_path / "logs", None, [])
    assert len(found.lines) == 21
    assert found.lines[5].text == 'isr-change orders-0 epoch 3 zxid 45 in sync 1,2 out of sync 3 {"why":"x"}'
    assert found.lines[6] == LogLine(5 * SECOND + SECOND // 2, "n1", False, "INFO hello")
    assert all(word.event for word in without.lines), "without the origin a log file has no place"


def test_of_too_many_lines_those_near_a_moment_are_kept(
    tmp_path: Path, recording: HistoryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 5)
    with recording:
        found = read_node_logs(recording, tmp_path / "logs", ORIGIN, [2 * SECOND, 17 * SECOND])
    assert [word.time // SECOND for word in found.lines] == [1, 2, 3, 16, 17]
    assert found.omitted == 16
