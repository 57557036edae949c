"""The report page of one run."""

from __future__ import annotations

from pathlib import Path


def render(run_dir: Path) -> Path:
    """Writes ``report.html`` into the run's folder."""
    target = run_dir / "report.html"
    target.write_text("<!doctype html><title>report</title>" + (run_dir / "verdict.json").read_text())
    return target
