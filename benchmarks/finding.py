"""Time until a search finds a bug, in processor seconds, alone or compared with another checkout.

The bugs are built-in defects, by workload, and patches. A folder of patches has:

- ``NN.patch``, applied to a copy of the checkout
- ``before/NN.patch``, if the other checkout needs a different one
- ``list.txt``, with a line for each patch: number, workload, description

Each search starts without a corpus; times include all its processes.

    python benchmarks/finding.py [--defects test_log/truncate-to-hw,...] [--patches FOLDER] [--seeds 1,2] [--limit 150]
        [--against PATH] [--json]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from explorers import ROOT, open_explorer, run_in_checkout
from figures import Output, make_parser, names, numbers

CHILD = "--here"
NO_DEFECT = "-"
DEFECTS = [
    "test_log/truncate-to-hw", "test_log/divergent-tail", "test_log/hw-checkpoint-lost",
    "test_async_sends/retry-reorders",
]  # fmt: skip


class FoundError(Exception):
    """Raised to stop a search after its first finding."""


def run_search(workload: str, defect: str, seed: int, limit: float) -> dict[str, Any]:
    """Runs one search in this process. The package ``assay`` may come from an older checkout."""
    findings: list[dict[str, Any]] = []
    with open_explorer(workload, seed, None if defect == NO_DEFECT else defect, seconds=limit) as (search, spent):

        def on_found(found: Any) -> None:
            findings.append({"seconds": spent(), "examples": found.examples, "what": sorted(found.outcome.failures)})
            raise FoundError

        search.on_found = on_found
        try:
            search.run()
        except FoundError:
            return findings[0]
        return {"seconds": None, "examples": search.tally.examples, "what": []}


@contextmanager
def copy_with_patch(checkout: Path, patch: Path) -> Iterator[Path]:
    """Yields a copy of the checkout with the patch applied."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        left_out = shutil.ignore_patterns(".git", ".venv", "store", "__pycache__")
        shutil.copytree(checkout, copy, symlinks=True, ignore=left_out)
        subprocess.run(["git", "apply", str(patch)], cwd=copy, check=True)
        yield copy


def read_patches(folder: Path) -> dict[str, tuple[str, str]]:
    """Returns the workload and the description of each bug, by number."""
    lines = [line.split(maxsplit=2) for line in (folder / "list.txt").read_text().splitlines() if line.strip()]
    return {number: (workload, what) for number, workload, what in lines}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--defects", type=names, default=DEFECTS)
    parser.add_argument("--patches", type=Path, help="a folder with patches")
    parser.add_argument("--seeds", type=numbers, default=[1])
    parser.add_argument("--limit", type=float, default=150.0, help="time limit of a search in seconds")
    parser.add_argument("--against", type=Path, help="another checkout, such as a worktree of an older commit")
    options = parser.parse_args()
    output = Output(options.json)
    sides = {"this": ROOT} | ({"other": options.against.resolve()} if options.against else {})
    figures: dict[str, Any] = {}

    def search(bug: str, checkout: Path, side: str, workload: str, defect: str, seed: int) -> None:
        found = json.loads(run_in_checkout(__file__, checkout, [CHILD, workload, defect, seed, options.limit]))
        figures.setdefault(bug, {}).setdefault(side, []).append(found)
        took = "nothing" if found["seconds"] is None else f"{', '.join(found['what'])} after {found['seconds']:.0f} s"
        output.text(f"{bug}, {workload}, seed {seed}, {side}: {took}, {found['examples']} examples")

    for turn, seed in enumerate(options.seeds):
        order = sorted(sides, reverse=bool(turn % 2))
        for one in options.defects:
            workload, _, defect = one.partition("/")
            for side in order:
                search(defect, sides[side], side, workload, defect, seed)
        for number, (workload, _) in read_patches(options.patches).items() if options.patches else ():
            for side in order:
                patch = options.patches.resolve() / f"{number}.patch"
                before = patch.parent / "before" / patch.name
                with copy_with_patch(sides[side], before if side == "other" and before.exists() else patch) as copy:
                    search(f"patch {number}", copy, side, workload, NO_DEFECT, seed)
    output.figures(figures)


if __name__ == "__main__":
    if CHILD in sys.argv:
        workload, defect, seed, limit = sys.argv[2:]
        print(json.dumps(run_search(workload, defect, int(seed), float(limit))))
    else:
        main()
