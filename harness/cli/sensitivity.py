"""``assay sensitivity RUN``: plants violations into copies of a run that passed, and counts those that are caught."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError, add_plugin_options, note, parse_count, parse_positive, show
from assay.harness.run.settings import ENGINES, parse_engine

if TYPE_CHECKING:
    from assay.checkers.judging.sensitivity import Sensitivity

DESCRIPTION: Final = """\
Measures which violations a passed run would have shown if they had happened. For each anomaly that its contract
forbids, it plants violations into copies of the history: a lost element, a stale read, a second owner. It prints the
share of them that the checks catch, with a 95 % interval. It also prints an example of a violation that the run would
have missed, with the reason.

A claim is something that a history asserts, such as an acknowledged element. It is exposed if the history has an
operation that could contradict it.

The result is written into the run's folder (sensitivity.json), where `assay report RUN` draws it. Nothing else of the
run changes, and nothing of it is executed."""

EXAMPLES: Final = """\
examples:
  assay sensitivity store/latest                       the last run
  assay sensitivity store/latest --anomaly=set-lost    only this anomaly
  assay sensitivity store/latest --plants=100          narrower intervals
  assay sensitivity store/latest --json                the content of sensitivity.json

exit codes: 0 measured, 1 a violation that the history could have shown was not caught (a defect: please report it),
  64 wrong usage, or the run did not pass
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "sensitivity", help="which violations would a passed run have shown?", description=DESCRIPTION, epilog=EXAMPLES
    )
    parser.add_argument("path", type=Path, metavar="RUN", help="a run that passed, or a history folder")
    parser.add_argument(
        "--plants", type=parse_positive, default=30, metavar="N",
        help="violations for each anomaly: N at claims that the history exposed, and N at any claims (default: 30)",
    )  # fmt: skip
    parser.add_argument(
        "--anomaly", action="append", default=[], metavar="NAME", help="only this anomaly; may be repeated"
    )
    parser.add_argument(
        "--seed", type=parse_count, default=0, metavar="N", help="seed of the drawn claims (default: 0)"
    )
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="as for `assay check`")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_plugin_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    import msgspec

    from assay.checkers.engine import Engines
    from assay.checkers.judging.sensitivity import FILE, OWN
    from assay.checkers.judging.verdict import Verdict
    from assay.harness.cli.command import hide_pandas
    from assay.harness.cli.time_estimate import show_estimate
    from assay.harness.core.files import write_output
    from assay.harness.run.registry import Registry
    from assay.harness.sensitivity.measure import measure
    from assay.harness.stored.by_contract import judge_again, open_stored

    hide_pandas()
    registry = Registry.with_modules(arguments.plugin, trusts_runs=arguments.trust_run)
    stored = open_stored(arguments.path)
    history = stored.open_complete_part()
    with Engines(parse_engine(arguments.engine, None)) as engines, show_estimate() as estimate:
        judgement = judge_again(stored, history, engines, registry, estimate.step)
        if judgement.verdict is not Verdict.PASS:
            raise InputError(
                f"{arguments.path} did not pass (its verdict is {judgement.verdict}), and sensitivity says what a "
                "pass is worth; `assay check` says why it did not pass"
            )
        unknown = sorted(set(arguments.anomaly) - set(judgement.forbidden))
        if unknown:
            raise InputError(
                f"the run does not forbid {', '.join(unknown)}; it forbids {', '.join(sorted(judgement.forbidden))}"
            )
        measured = measure(
            history, stored.contract, judgement, engines,
            families=registry.families, model=registry.model(stored.contract.model), plants=arguments.plants,
            seed=arguments.seed, anomalies=arguments.anomaly or None, watch=estimate.step,
        )  # fmt: skip
    data = msgspec.json.format(msgspec.json.encode(measured), indent=1)
    if arguments.json:
        print(data.decode())
    else:
        show(describe(measured))
    if stored.run is not None and not arguments.anomaly:
        try:
            write_output(stored.run / FILE, data, OWN)
        except OSError as error:  # the run of another user, one that was deleted meanwhile, or a file of others
            note(f"not written: {stored.run / FILE}: {error}")
        else:
            note(f"written: {stored.run / FILE}; `assay report {stored.run}` draws it")
    return ExitCode.FAIL if measured.escaped else ExitCode.PASS


def describe(measured: Sensitivity) -> str:
    """Returns the result as a table, with examples of missed violations."""
    from assay.checkers.judging.sensitivity import LOW_SHARE

    lines = []
    width = max((len(share.anomaly) for share in measured.shares), default=0)
    for share in measured.shares:
        low = f"  LOW (below {100 * LOW_SHARE:g} %)" if share.is_low else ""
        lines.append(
            f"{share.anomaly:{width}}  {share!s:28}  {share.exposed:,} of {share.claims:,} claims exposed{low}"
        )
        if share.missed is not None:
            lines.append(f"{'':{width}}  missed: {share.missed}")
        lines += [f"{'':{width}}  NOT CAUGHT, though exposed: {words}" for words in share.escaped]
    if not lines:
        lines.append("no anomaly that the contract forbids can be planted into this history")
    for reason, anomalies in measured.unplanted_by_reason.items():
        lines.append(f"not planted, because {reason}: {', '.join(anomalies)}")
    if measured.left_out is not None:
        lines.append(measured.left_out)
    cost = f"{measured.copies:,} copies judged in {measured.seconds:.1f} s"
    if measured.judging_seconds:
        cost += f", {measured.seconds / measured.judging_seconds:.1f} times as long as the run"
    lines.append(cost)
    return "\n".join(lines)
