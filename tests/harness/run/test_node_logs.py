"""The output of simulated processes takes bounded memory: its beginning and its end are kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from assay.cluster.sim.loop import SimLoop
from assay.harness.run import node_logs
from assay.harness.run.node_logs import LogBuffer, SimLogs


def saved(buffer: LogBuffer) -> list[str]:
    return buffer.read().decode().splitlines()


@pytest.mark.parametrize("width", [10, 50_000, pytest.param(8_000_000, marks=pytest.mark.slow)])
def test_however_long_the_lines_are_the_bytes_that_are_kept_are_bounded(width: int) -> None:
    buffer, text = LogBuffer(), "é" * width
    for number in range(100 if width > 1_000_000 else 1000):
        buffer.add(number, f"{number} begins {text} ends {number}")
    lines = saved(buffer)
    assert len(buffer.read()) <= node_logs.HEAD_BYTES + node_logs.TAIL_BYTES + (1 << 18)
    assert lines[0].startswith("   0.000000 0 begins")
    assert lines[0].endswith("ends 0")
    assert lines[-1].startswith(f"{number:11.6f} {number} begins")
    assert lines[-1].endswith(f"ends {number}")


def test_the_first_and_the_last_lines_are_kept_with_the_number_of_the_others_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_logs, "HEAD_LINES", 2)
    monkeypatch.setattr(node_logs, "TAIL_LINES", 3)
    buffer = LogBuffer()
    for number in range(9):
        buffer.add(number, f"line {number}")
        if number == 4:
            assert [line[12:] for line in saved(buffer)] == [f"line {one}" for one in range(5)]
    assert [line[12:] for line in saved(buffer)] == [
        "line 0",
        "line 1",
        "assay: 4 lines of 72 bytes were left out here",
        "line 6",
        "line 7",
        "line 8",
    ]
    assert [float(line[:11]) for line in saved(buffer)] == [0, 1, 5, 6, 7, 8]


def test_each_process_has_a_file(tmp_path: Path) -> None:
    with closing(SimLoop()) as loop:
        logs = SimLogs(loop)
        logs.add("n1", "one")
        logs.add("n1/copy", "\udcff")
        logs.save(tmp_path)
    assert (tmp_path / "n1" / "process.log").read_text() == "   0.000000 one\n"
    assert (tmp_path / "n1" / "copy.log").read_text() == "   0.000000 \\udcff\n"
