"""Processor seconds of `assay index` for a store of many runs, and the size of its page.

The store is synthetic: folders with the small files of a run, 14 nights of 12 workloads under 20 nemeses.

    PYTHONPATH=tests python benchmarks/morning.py [--runs 1000,10000] [--keep DIR] [--json]
"""

from __future__ import annotations

import tempfile
import time
from datetime import date
from pathlib import Path

from assay.harness.nightly.store_index import read_store
from assay.reports.index.known import KnownFailures
from assay.reports.index.page import render_page

from figures import Output, make_parser, numbers
from helpers.morning_store import many


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=numbers, default=[1_000, 10_000])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the store and its page there, and leave them")
    options = parser.parse_args()
    out, found = Output(options.json), []
    for runs in options.runs:
        with tempfile.TemporaryDirectory() as folder:
            root = many(Path(folder) if options.keep is None else options.keep / str(runs), runs)
            began = time.process_time()
            stored = read_store(root, {})
            middle = time.process_time()
            page = render_page(stored, KnownFailures(today=date(2026, 11, 24))).html.encode()
            ended = time.process_time()
            (root / "index.html").write_bytes(page)
        out.text(f"{runs:6} runs: read in {middle - began:.2f} s, written in {ended - middle:.2f} s, {len(page):,} B")
        found.append({"runs": runs, "read": middle - began, "drawn": ended - middle, "bytes": len(page)})
    out.figures({"stores": found})


if __name__ == "__main__":
    main()
