"""What is said of a schedule that was made small, next to the run that was played last: its report shows it."""

from pathlib import Path

import msgspec

from assay.harness.search.example import Example, described
from assay.harness.search.shrink import left_out
from assay.reports.files import SHRINKING, Shrinking


def write_story(
    run: Path, before: Example, after: Example, *, runs: int, first: str | None, last: str, minimal: bool
) -> None:
    """Into the folder of a run. ``runs``: how many were played; ``first``, ``last``: how often it failed before and
    fails now.
    """
    story = Shrinking(
        runs=runs,
        kept=tuple(described(step).strip() for step in after.schedule.all_steps),
        left_out=tuple(described(step).strip() for step in left_out(before, after)),
        first=first,
        last=last,
        minimal=minimal,
    )
    (run / SHRINKING).write_bytes(msgspec.json.format(msgspec.json.encode(story)))
