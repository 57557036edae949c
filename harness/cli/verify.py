"""``assay verify CERTIFICATE HISTORY``: replays the certificate of an isolation level."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any, Final

from assay.harness.cli.command import ExitCode, show

DESCRIPTION: Final = """\
Replays a certificate that `assay check --certificate=FILE` wrote, on the history that it is about. The replay searches
for nothing and shares no code with the checker; its source is short (checkers/isolation/certificate_replay.py)."""

EPILOG: Final = """\
example:
  assay check history.edn --workload=rw-register --level=snapshot-isolation --certificate=order.json
  assay verify order.json history.edn
exit codes: 0 the certificate shows the level, 1 it does not, 64 a file cannot be read
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "verify", help="replay the certificate of an isolation level", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("certificate", type=Path, metavar="CERTIFICATE", help="the file of assay check --certificate")
    parser.add_argument("history", type=Path, metavar="HISTORY", help="the history that was judged")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    from assay.harness.cli.check_many import list_options
    from assay.harness.stored.certificate_file import read_certificate, to_request
    from assay.harness.stored.certificate_verification import verify

    certificate = read_certificate(arguments.certificate)
    flaw, count = verify(certificate, arguments.history)
    if flaw is not None:
        show(f"WRONG: {arguments.certificate} does not show {certificate['level']}: {flaw}")
        return ExitCode.FAIL
    options = shlex.join(list_options(to_request(certificate, arguments.history)))
    show(
        f"VERIFIED: {arguments.history} is {certificate['level']}, as the replay of {count} transactions shows, if it "
        f"is read by: {options}"
    )
    return ExitCode.PASS
