"""Memory and disk space on the page of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.checkers.judging.verdict import Verdict
from assay.harness.core.resources import FILE, Resources, Samples
from assay.reports.model import read_report
from assay.reports.page import render
from assay.reports.resources import MOST_LINES, build_lines, compute_growth, order_names

from helpers.run_folders import HOSTILE, judgement, ordinary, write_run

MB = 1_000_000


def rising(per_hour: float, *, seconds: int = 3600, start: float = 100.0) -> Samples:
    """Samples every 10 s that begin at ``start`` MB, and rise by so many MB per hour."""
    return [(float(time), int((start + per_hour * time / 3600) * MB)) for time in range(0, seconds + 1, 10)]


@pytest.mark.parametrize("per_hour", [0.0, 12.0, -3.0])
def test_growth_is_in_megabytes_per_hour(per_hour: float) -> None:
    assert compute_growth(rising(per_hour)) == pytest.approx(per_hour, abs=0.1)
    assert compute_growth(rising(per_hour, seconds=8 * 3600)) == pytest.approx(per_hour, abs=0.1)


def test_neither_warm_up_nor_restarts_are_growth() -> None:
    samples = [(time, 20 * MB if time < 800 or time % 300 < 30 else 100 * MB) for time, _ in rising(0)]
    assert compute_growth(samples) == 0


def test_a_short_run_and_one_without_samples_have_no_growth() -> None:
    assert compute_growth(rising(12, seconds=500)) is None
    assert compute_growth([]) is None
    assert compute_growth([(0.0, 1), (3600.0, 1)]) is None


def test_the_sentence_has_largest_values_and_growth() -> None:
    resources = Resources(
        memory={"n2": rising(0), "n10": rising(0, start=50), "harness": rising(12)},
        disk={"run": rising(30, start=10.0), "zk1": [(0.0, 0), (5.0, 0)], "n2": [(0.0, 20_000)]},
    )
    assert build_lines(resources, simulated=False).sentences == (
        "Largest resident memory: harness 112.0 MB (+12.0 MB per hour), n2 100.0 MB (+0.0 MB per hour), "
        "n10 50.0 MB (+0.0 MB per hour).",
        "Largest disk space: run's folder 40.0 MB (+30.0 MB per hour), n2 0.02 MB.",
        "Growth is that of the median from the second quarter of the run to the last.",
    )
    short = build_lines(Resources(memory={"harness": rising(12, seconds=60)}), simulated=True)
    assert short.sentences == ("Largest resident memory: harness 100.2 MB.",)
    simulated = build_lines(Resources(memory={"harness": rising(12)}), simulated=True)
    assert "(+12.0 MB per simulated hour)" in simulated.sentences[0]


def test_lines_and_samples_are_bounded_and_the_harness_always_has_one() -> None:
    memory = {f"n{number}": rising(0, start=100 + number) for number in range(100)}
    memory |= {"harness": [(float(time), 1) for time in range(100_000)]}
    lines = build_lines(Resources(memory=memory), simulated=False).memory
    assert len(lines) == MOST_LINES
    assert [line.name for line in lines[:2]] == ["harness", "n77"]
    assert all(len(line.samples) <= 800 for line in lines)


def test_nodes_have_the_colours_of_the_leadership_panel() -> None:
    lines = build_lines(Resources(memory={name: rising(0) for name in ("n1", "n2", "zk1", "harness")}), False).memory
    assert order_names(lines, ("n2", "n3")) == {"n2": 0, "n3": 1, "n1": 2, "zk1": 3}


def page_of(folder: Path, resources: str | None) -> str:
    write_run(folder, judgement(Verdict.PASS), ordinary())
    if resources is not None:
        (folder / FILE).write_text(resources)
    return render(folder).read_text()


@pytest.mark.slow
def test_the_page_shows_what_was_recorded_and_nothing_for_an_older_run(tmp_path: Path) -> None:
    recorded = json.dumps({"memory": {"n1": rising(0), HOSTILE: rising(1)}, "disk": {"run": rising(1)}})
    page = page_of(tmp_path / "new", recorded)
    assert "Resident memory, MB" in page
    assert "Disk space, MB" in page
    assert 'id="resources">Largest resident memory: ' in page
    assert HOSTILE not in page
    older = page_of(tmp_path / "old", None)
    assert "Resident memory" not in older
    assert "resident memory" not in older
    assert FILE not in older


@pytest.mark.parametrize("text", ["{", '{"memory": {"n1": [["x", 1]]}}', '{"memory": 5}'])
def test_a_damaged_file_is_named_and_the_rest_is_shown(tmp_path: Path, text: str) -> None:
    run = write_run(tmp_path / "run", judgement(Verdict.PASS), ordinary())
    (run / FILE).write_text(text)
    report = read_report(run)
    assert report.recorded is not None
    assert report.recorded.resources.sentences == ()
    assert any(FILE in problem for problem in report.problems)
