"""``assay defects``: the defects that a system has built in, for ``--defect``."""

import argparse
from typing import Any

from assay.harness.cli.command import Exit, reading, system_option
from assay.harness.run.systems import described_defects


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "defects", help="the defects built into the broker, for --defect=NAME",
        description="Lists what --defect switches on, the fault that shows it, and the anomaly to be reported.",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as a JSON list")
    system_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Exit:
    defects = reading(lambda: described_defects(arguments.system))
    if arguments.json:
        import msgspec

        print(msgspec.json.encode(defects).decode())
        return Exit.PASS
    for defect in defects:
        print(f"{defect.name}\n  what goes wrong   {defect.summary}\n  shown by          {defect.fault}")
        print(f"  must be reported  {', '.join(defect.anomalies)}\n  reference         {defect.reference}")
        print(f"  caught by         pytest {defect.run} --defect={defect.name}\n")
    return Exit.PASS
