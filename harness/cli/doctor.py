"""``assay doctor``: reports what this machine, or those of ``--cluster=ssh``, can do, and what to install."""

import argparse
from pathlib import Path
from typing import Any

from assay.harness.cli.command import ExitCode
from assay.harness.run.settings import DEFAULT_HOSTS, SSH


def add(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="report what this machine can do, and what to install")
    parser.add_argument("--cluster", choices=[SSH], help="examine machines of your own instead of this one")
    parser.add_argument("--hosts", metavar="FILE", type=Path, default=Path(DEFAULT_HOSTS),
                        help=f"file that lists the machines and their access (default: {DEFAULT_HOSTS})")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.cluster import doctor
    from assay.harness.cli.time_estimate import StepLine

    step, findings = StepLine(), []
    width = doctor.NAME_WIDTH
    try:
        for finding in (
            doctor.diagnose_hosts(arguments.hosts, step.show)
            if arguments.cluster == SSH
            else doctor.diagnose(step.show)
        ):
            step.clear()
            findings.append(finding)
            if arguments.json:
                continue
            mark = "ok" if finding.good else "MISSING" if finding.required else "no"
            print(f"{mark:<8}{finding.name:<{width}}  {finding.detail}", flush=True)
            if not finding.good:
                purpose = f" (for {finding.enables})" if finding.enables else ""
                print(f"{'':<8}{'':<{width}}  {finding.remedy}{purpose}", flush=True)
    finally:
        step.clear()
    if arguments.json:
        import msgspec

        print(msgspec.json.encode(findings).decode())
    return ExitCode.FAIL if any(finding.required and not finding.good for finding in findings) else ExitCode.PASS
