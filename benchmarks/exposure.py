"""Share of the checking time that counting exposed claims costs (``assay.checkers.exposure``).

A claim is exposed if a read of the history could have contradicted it.

    python benchmarks/exposure.py [--models log,register] [--effects 11000000] [--keys 1000] [--runs 5] [--folder DIR]
        [--duckdb-memory 4GB] [--json]

1. ``assay generate`` makes a sound history of each model.
2. DuckDB judges it alternately with and without exposure, each time in a separate process.
3. The medians of both are printed, and the ratio of their difference to the time without exposure.

"Without exposure": ``exposure`` is removed from every check, and polls after the last fault are not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from assay.checkers.check import Family, PreparedTables, View
from assay.checkers.engine import DuckDB
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.judge import judge
from assay.checkers.sql_idioms import sum_so_far
from assay.harness.synthetic.generate import HISTORY
from checks import make_history

from figures import Output, make_parser, names, open_folder

LATE: Final = sum_so_far("late", by="key", order="position, is_offset")
"""Counts the polls after the last fault. Only exposure needs this part of a view."""
SIDES: Final = ("with", "without")


def copy_families(*, exposure: bool) -> Sequence[Family]:
    """Returns copies of all families. Built-in checks skip empty tables and copies do not, so both sides are copies."""
    return [_copy(family) if exposure else _drop_exposure(family) for family in FAMILIES]


def _copy(family: Family) -> Family:
    return replace(family, checks=tuple(replace(check, violations="") for check in family.checks))


def _drop_exposure(family: Family) -> Family:
    prepare = family.prepare
    if isinstance(prepare, PreparedTables):
        prepare = replace(prepare, tables=tuple(map(_drop_late, prepare.tables)))
    return replace(
        family,
        prepare=prepare,
        views=tuple(map(_drop_late, family.views)),
        checks=tuple(replace(check, violations="", exposure=None) for check in family.checks),
    )


def _drop_late(view: View) -> View:
    return replace(view, sql=view.sql.replace(LATE, "0"))


def judge_once(path: Path, side: str, memory: str) -> float:
    """Returns the seconds that the checks take, without validation."""
    with DuckDB(memory=memory) as duck:
        found = judge(open_history(path / HISTORY), Contract(), duck, families=copy_families(exposure=side == "with"))
    if found.anomalies:
        raise SystemExit(f"{path} is sound, and {', '.join(found.anomalies)} was found")
    return found.stages["checking"]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--models", type=names, default=["log", "register"])
    parser.add_argument("--effects", type=int, default=11_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--duckdb-memory", default="4GB")
    parser.add_argument("--one", nargs=2, metavar=("HISTORY", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(judge_once(Path(options.one[0]), options.one[1], options.duckdb_memory)))
        return
    out = Output(options.json)
    out.text("| history | with | without | cost of exposure |")
    out.text("|---|---|---|---|")
    rows = []
    with open_folder(options.folder) as folder:
        for model in options.models:
            path = make_history(folder, model, options.effects, options.keys, options.clients, 0, out)
            seconds: dict[str, list[float]] = {side: [] for side in SIDES}
            for _ in range(options.runs):
                for side in SIDES:
                    command = [sys.executable, __file__, "--one", str(path), side]
                    command.append(f"--duckdb-memory={options.duckdb_memory}")
                    seconds[side].append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
            both = {side: median(taken) for side, taken in seconds.items()}
            cost = both["with"] / both["without"] - 1
            rows.append({"history": path.name, **both, "cost": cost})
            out.text(f"| {path.name} | {both['with']:.1f} s | {both['without']:.1f} s | {cost:+.1%} |")
    out.figures({"rows": rows})


if __name__ == "__main__":
    main()
