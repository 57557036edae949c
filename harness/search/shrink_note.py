"""Stores the result of shrinking in the folder of the last run; its report shows it."""

from pathlib import Path

import msgspec

from assay.harness.search.example import Example, describe_step
from assay.harness.search.shrink import find_removed_steps
from assay.reports.files import SHRINKING, Shrinking


def write_shrink_note(
    run: Path, before: Example, after: Example, *, runs: int, first: str | None, last: str, minimal: bool
) -> None:
    """Writes the result into the folder of a run.

    ``runs`` is the number of runs played; ``first`` and ``last`` are the failure rates before and after.
    """
    story = Shrinking(
        runs=runs,
        kept=tuple(describe_step(step).strip() for step in after.schedule.all_steps),
        left_out=tuple(describe_step(step).strip() for step in find_removed_steps(before, after)),
        first=first,
        last=last,
        minimal=minimal,
    )
    (run / SHRINKING).write_bytes(msgspec.json.format(msgspec.json.encode(story)))
