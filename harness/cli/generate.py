"""``assay generate MODEL``: writes a synthetic history of any size, with planted anomalies."""

import argparse
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from assay.harness.cli.command import ExitCode, parse_count
from assay.harness.core.printable import count_noun
from assay.harness.synthetic.catalogue import CATALOGUE

DESCRIPTION: Final = """\
Writes a history that many clients of correct objects could have had, and plants one anomaly for each --plant in it.
It prints the places of these anomalies (also in DIR/planted.json). `assay check DIR` must find them, and nothing else.
Memory does not grow with the number of operations.

  assay generate log --operations=10000000 --keys=1000 --seed=7 --plant=lost-write --out=big
  assay check big                            exits 1: the lost write is found
  assay generate register --clients=200 --info-share=0.1 --bursts=3 --out=hard
  assay check hard                           exits 0: nothing is found, although every tenth operation timed out
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("generate", help="write a synthetic history of any size to check",
        description=DESCRIPTION, epilog=_describe_catalogue())  # fmt: skip
    option = parser.add_argument
    option("model", choices=tuple(CATALOGUE), metavar="MODEL", help=f"one of {', '.join(CATALOGUE)}")
    option(
        "--out", type=Path, required=True, metavar="DIR", help="the folder that is written; it must be empty or missing"
    )
    option(
        "--operations", type=parse_count, default=100_000, metavar="N", help="number of operations (default: 100000)"
    )
    option(
        "--clients", type=parse_count, default=50, metavar="N", help="operations that are pending at once (default: 50)"
    )
    option(
        "--keys",
        type=parse_count,
        default=100,
        metavar="N",
        help="number of partitions, registers, leases, ... (default: 100)",
    )
    option("--seed", type=parse_count, default=0, metavar="N", help="equal seeds give equal histories (default: 0)")
    option(
        "--info-share",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="share of operations that time out (default: 0.01)",
    )
    option("--bursts", type=parse_count, metavar="N", help="operations time out in N windows, in which "
        "few clients get an answer, as under network faults; 0: anywhere (default: one for each 25000 "
        "operations)")  # fmt: skip
    option("--plant", action="append", default=[], metavar="ANOMALY",
        help="plant this anomaly, in a key of its own; may be repeated")  # fmt: skip
    parser.set_defaults(run=run)


def _describe_catalogue() -> str:
    """Lists the models, and the anomalies that can be planted in each."""
    lines = []
    for name, entry in CATALOGUE.items():
        lines += textwrap.wrap(entry.about, 100, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12)
        lines += textwrap.wrap(
            "plant: " + ", ".join(entry.anomalies), 100, initial_indent=" " * 12, subsequent_indent=" " * 19,
            break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(["models, and what can be planted in each:", *lines])


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.cli.time_estimate import show_estimate
    from assay.harness.synthetic.generate import generate
    from assay.harness.synthetic.plan import Plan

    options = {field.name: getattr(arguments, field.name) for field in fields(Plan)}
    plan = Plan(**options | {"plant": tuple(arguments.plant)})
    with show_estimate() as estimate:
        written = generate(
            arguments.model, plan, arguments.out, lambda done: estimate.step("writing", done, plan.operations)
        )
    print(f"{arguments.out}: {count_noun(written.operations, 'operation')}, {count_noun(written.effects, 'effect')}")
    for planted in written.planted:
        where = "" if planted.position is None else f" at offset {planted.position}"
        what = "" if planted.value is None else f", value {planted.value}"
        when = f"{planted.time / 1e9:.6f} s to {planted.until / 1e9:.6f} s"
        operations = ", ".join(map(str, planted.operations))
        place = "" if planted.key is None else f" in {planted.key}"
        print(f"planted: {planted.anomaly}{place}{where}{what}, from {when}, operations {operations}")
    print(f"in {written.seconds:.1f} s; to check it: assay check {arguments.out}", file=sys.stderr)
    return ExitCode.PASS
