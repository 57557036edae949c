"""Writes the generated pages of the reference: docs/reference/generated/NAME.md, from the declarations in the code.

``make docs`` calls it. Git ignores the pages. ``PAGES`` maps the name of each page to the function that makes it.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import assay
from assay.checkers.check import Check, Family
from assay.checkers.families import FAMILIES
from assay.checkers.isolation.exposure import declare_level_exposure
from assay.checkers.isolation.levels import SERIALIZABLE
from assay.checkers.judging.coverage import NO_RECOVERY_MEANING, NO_RECOVERY_UNCLAIMED
from assay.checkers.linearizability.key_result import MEANING, NONLINEARIZABLE, UNCLAIMED
from assay.checkers.transactions.family import TRANSACTION_ORDERS
from assay.checkers.workload_checks.catalog import list_anomalies
from assay.harness.cli import main as cli
from assay.harness.core.history.data_sets import DATA_SETS, FORMAT, KIND_MEANINGS, LOOK_MEANINGS
from assay.harness.foreign import answers
from assay.harness.plugin.options import add_options
from assay.nemesis.faults.fault import Census, Fault
from assay.nemesis.schedule.catalogue import FaultCatalogue
from assay.nemesis.schedule.schedule import ScheduleError
from assay.system_under_test.defects import DEFECTS
from assay.system_under_test.event_columns import EVENT_COLUMNS, EventColumns
from assay.workloads.broker.group_mixes import GROUP_MIXES, OFFSETS_MIXES, ZOOKEEPER_MIXES
from assay.workloads.broker.mixes import LOG_MIXES

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference" / "generated"
CENSUS = Census(5, 3, ("orders-0", "orders-1"), 3, ("members",), sessions=True, spares=1)
"""A cluster in which every fault can be drawn."""
DRAWS = 300
LEVEL_EXPOSURE = "assay.checkers.isolation.exposure"


def make_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table; a bar or a line break inside a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    cells = ([re.sub(r"\s+", " ", cell).replace("|", "\\|").strip() for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def to_markdown(text: str) -> str:
    """Returns a docstring as Markdown: double backquotes and roles become single backquotes."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda match: f"`{match.group(1).rsplit('.', 1)[-1]}`", text)
    return text.replace("``", "`")


class OptionRecorder:
    """Records the options that the plugin adds to pytest's parser, except hidden ones."""

    def __init__(self) -> None:
        self.options: list[tuple[str, dict[str, Any]]] = []

    def getgroup(self, *_: str) -> OptionRecorder:
        return self

    def addoption(self, name: str, **details: Any) -> None:
        if details.get("help") != argparse.SUPPRESS:
            self.options.append((name, details))


def make_options_page() -> str:
    recorder = OptionRecorder()
    add_options(recorder)  # type: ignore[arg-type]
    rows = []
    for name, details in sorted(recorder.options):
        shown = name if details.get("action") == "store_true" else f"{name}={details['metavar']}"
        rows.append([f"`{shown}`", escape_markup(details["help"])])
    return (
        "# pytest options\n\nThe plugin adds these options to `pytest`. `pytest --help` prints the same list in the "
        "group `assay`.\n\n" + make_table(["option", "meaning"], rows)
    )


def escape_markup(text: str) -> str:
    """Returns plain text such that Markdown shows it unchanged, with options and paths as code."""
    text = re.sub(r"([*_<>\[\]])", r"\\\1", text)
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]*(?:=[\w.:]+)?)", r"`\1`", text)


def make_cli_page() -> str:
    parser = cli.build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    parts = ["# The command line\n", "`assay` works on stored runs and histories. pytest makes runs.\n"]
    parts.append(make_code_block(parser.format_help()))
    for name, verb in commands.choices.items():
        parts.append(f"## assay {name}\n\n{make_code_block(verb.format_help())}")
        for action in verb._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner, nested in action.choices.items():
                    parts.append(f"### assay {name} {inner}\n\n{make_code_block(nested.format_help())}")
    return "\n".join(parts)


def make_code_block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def list_parameters(fault: Fault) -> dict[str, list[str]]:
    """Returns each parameter of a fault with the values that are drawn for it, in ascending order."""
    found: dict[str, dict[Any, None]] = {}
    for seed in range(DRAWS):
        try:
            _, parameters = fault.draw(random.Random(seed), CENSUS, None)
        except ScheduleError:
            continue
        for name, value in parameters.items():
            found.setdefault(name, {})[value if isinstance(value, str | int | float | bool) else str(value)] = None
    return {name: shorten(list(values)) for name, values in sorted(found.items())}


def shorten(values: list[Any]) -> list[str]:
    """Returns up to eight values as text. If there are more and all are numbers, returns their range."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(values) > 8 and len(numbers) == len(values):
        return [f"{min(numbers):.4g} to {max(numbers):.4g}"]
    ordered = sorted(values) if len(numbers) == len(values) else sorted(map(str, values))
    return [str(value) for value in ordered[:8]] + (["..."] if len(values) > 8 else [])


IMPACT_TEXTS = {
    "ends_process": "ends the process",
    "pauses_process": "pauses the process",
    "cuts_links": "cuts links",
    "loses_unsynced": "loses data that was not fsynced",
    "damages_files": "changes files",
    "wrong_clock": "sets a wrong wall clock",
    "moves_replicas": "moves replicas",
}


def make_faults_page() -> str:
    catalogue = FaultCatalogue.standard()
    rows = []
    for name, fault in catalogue.items():
        impact = (
            ", ".join(words for field, words in IMPACT_TEXTS.items() if getattr(fault.impact, field)) or "slows down"
        )
        protocols = [*fault.capabilities, *(ability.protocol for ability in getattr(fault, "abilities", ()))]
        needs = [f"`{protocol.__name__}`" for protocol in protocols] + [f"role `{role}`" for role in fault.roles]
        parameters = "; ".join(
            f"`{parameter}`: {', '.join(values)}" for parameter, values in list_parameters(fault).items()
        )
        alone = "yes" if name in catalogue.in_nemesis_all else "no"
        rows.append(
            [
                f"`{name}`",
                escape_markup(fault.description),
                impact,
                str(fault.scope),
                ", ".join(needs),
                parameters,
                alone,
            ]
        )
    return (
        "# Faults\n\nAll faults that come with assay. [Chapter 4](../../guide/faults.md) explains how to use them."
        "\n\n- *Impact*: what the fault does to its targets. Checks and reports use it."
        "\n- *Occupies*: the part of a node that the fault occupies. Two faults never occupy the same part of a node."
        "\n- *Needs*: the optional protocols that your system, or each server's node, must implement, and the "
        "roles that the cluster must have."
        "\n- *Parameters*: the names, with the values that a random schedule draws. In a schedule file you can give "
        "others.\n- *all*: `--nemesis=all` has a run of this fault.\n\n"
        + make_table(["fault", "description", "impact", "occupies", "needs", "parameters", "all"], rows)
        + "\n## How each works\n\n"
        + "\n".join(describe_faults(catalogue))
    )


def describe_faults(catalogue: FaultCatalogue) -> Iterable[str]:
    """Yields a section for each module of faults: the names of its faults, and its docstring."""
    modules: dict[str, list[str]] = {}
    for name, fault in catalogue.items():
        modules.setdefault(type(fault).__module__, []).append(name)
    for module, names in modules.items():
        text = ast.get_docstring(ast.parse(read_source(module))) or ""
        yield f"### {', '.join(names)}\n\n{to_markdown(text)}\n"


def read_source(module: str) -> str:
    """Returns the source of a module of the package, by its dotted name."""
    return (ROOT / Path(*module.split(".")[1:])).with_suffix(".py").read_text()


def find_module(check: Check) -> str:
    """Returns the dotted name of the module that defines a check."""
    return next(
        name
        for name, module in sorted(sys.modules.items())
        if name.startswith("assay.checkers.")
        and not name.endswith((".family", ".families"))
        and any(value is check or (isinstance(value, tuple) and check in value) for value in vars(module).values())
        and f'"{check.anomaly}"' in read_source(name)
    )


def summarize_family(family: Family) -> str:
    """Returns the titles of the modules in which the checks of a family are defined."""
    titles = []
    for name in dict.fromkeys(map(find_module, family.checks)):
        text = ast.get_docstring(ast.parse(read_source(name))) or ""
        titles.append(to_markdown(textwrap.shorten(text.partition("\n\n")[0], 400)))
    return "\n\n".join(titles)


def describe_exposure(check: Check) -> str:
    """Returns the claims of a check and what exposes them, in words."""
    if check.exposure is None:
        return "each row that was examined"
    owed = " A run without any is unknown." if check.exposure.remedy else ""
    later = "" if check.exposure.at_any_time else " later"
    return f"{check.exposure.nouns} {check.exposure.asserted}; exposed if {check.exposure.observed}{later}.{owed}"


def make_anomalies_page() -> str:
    """Returns a page with all anomalies, by the family of checks that finds them."""
    in_order = {anomaly for family in TRANSACTION_ORDERS for anomaly in family.anomalies}
    explained = set(re.findall(r"^### ([\w-]+)$", (FOLDER.parent / "anomalies.md").read_text(), re.MULTILINE))
    parts = [
        "# Anomalies by family\n",
        "A family is a group of checks about one kind of object. [Anomalies explained](../anomalies.md) has the "
        "smallest history of each and its nearest legal neighbour. "
        "[What a pass proves](../../concepts/verdicts.md#exposure) explains claims and exposure.\n",
    ]
    for family in FAMILIES:
        rows = []
        for check in family.checks:
            name = f"`{check.anomaly}`"
            linked = f"[{name}](../anomalies.md#{check.anomaly})" if check.anomaly in explained else name
            reads = ", ".join(f"`{kind}`" for kind in check.kinds)
            rows.append([linked, escape_markup(check.meaning), reads, describe_exposure(check)])
        order = " The order of processes or of real time counts." if set(family.anomalies) & in_order else ""
        parts.append(f"## {family.name}\n\n{summarize_family(family)}{order}\n")
        parts.append(make_table(["anomaly", "meaning", "needs effects", "claims, and when they are exposed"], rows))
    others = [
        ("no-recovery", NO_RECOVERY_MEANING, f"none, because {NO_RECOVERY_UNCLAIMED}"),
        (NONLINEARIZABLE, MEANING, f"none, because {UNCLAIMED}"),
        (answers.ANOMALY, answers.MEANING, f"{answers.CLAIMS}; exposed {answers.EXPOSED}"),
    ]
    workloads = [
        [
            f"`{name}`",
            escape_markup(one.meaning),
            f"{one.claims}; exposed if {one.exposed}".replace("if always", "always"),
        ]
        for name, one in list_anomalies().items()
    ]
    parts.append(
        "## Other\n\n`no-recovery` is judged with the coverage of a run, `nonlinearizable` by a model, "
        f"[`{answers.ANOMALY}`](../anomalies.md#{answers.ANOMALY}) when a file of another tool is read.\n"
    )
    rows = [[f"`{name}`", meaning, claims] for name, meaning, claims in others]
    parts.append(make_table(["anomaly", "meaning", "claims, and when they are exposed"], rows))
    exposure = declare_level_exposure(SERIALIZABLE)
    parts.append(
        "## Isolation levels\n\n[`isolate`](contract.md) adds a row `level NAME` to the table of what was checked. "
        f"Claims: {exposure.nouns} {exposure.asserted}; exposed if {exposure.observed}. "
        "A run without any is unknown.\n\n"
        + to_markdown(ast.get_docstring(ast.parse(read_source(LEVEL_EXPOSURE))) or "")
        + "\n"
    )
    parts.append(
        "## Workloads of other tools\n\nThese checks judge "
        "[Jepsen's and Maelstrom's workloads](../../cookbook/jepsen_history.md#workloads) from a file. They read "
        "operations, not effects.\n"
    )
    parts.append(make_table(["anomaly", "meaning", "claims, and when they are exposed"], workloads))
    return "\n".join(parts)


def read_fields(path: Path, class_name: str) -> list[tuple[str, str, str, str]]:
    """Returns name, type, default and docstring of each field of a class."""
    (found,) = (
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    fields = []
    for node, after in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = after.value.value if documented else ""  # type: ignore[union-attr]
            default = "" if node.value is None else ast.unparse(node.value)
            fields.append((ast.unparse(node.target), ast.unparse(node.annotation), default, str(text)))
    return fields


def make_contract_page() -> str:
    rows = [
        [f"`{name}`", f"`{kind}`", f"`{default}`" if default else "", to_markdown(text)]
        for name, kind, default, text in read_fields(ROOT / "checkers" / "judging" / "contract.py", "Contract")
    ]
    return (
        "# Contract fields\n\nA contract says which findings fail a run. Begin with `forbid(...)`; the fields below "
        "are the arguments of `Contract`.\n\n"
        + make_table(["field", "type", "default", "meaning"], rows)
        + "\n## Functions and methods\n\n::: assay.checkers.judging.contract.forbid\n"
        "\n::: assay.checkers.judging.contract.linearizable\n\n::: assay.checkers.judging.contract.Contract\n"
    )


ROW_MEANINGS = {
    "ops": "an operation, with its call, its return and its outcome",
    "effects": "an elementary change or observation by an operation",
    "faults": "a phase of a fault: intended, injected, healed, recovered, failed",
    "events": "a line of a node's event log",
    "replicas": "a record on a node's disk after the run",
    "looks": "a fact about the system at rest, read after the run",
}


def make_history_page() -> str:
    parts = [
        "# History columns\n",
        f"A history is a folder with six tables of Parquet files, in format {FORMAT}. [The history](../history.md) "
        "explains the rows.\n",
        make_table(["table", "a row is"], [[f"[`{name}`](#{name})", words] for name, words in ROW_MEANINGS.items()]),
    ]
    for name, columns in DATA_SETS.items():
        rows = [[f"`{one.name}`", one.type + (", may be null" if one.nullable else ""), one.meaning] for one in columns]
        parts.append(f"## {name}\n\n{make_table(['column', 'type', 'meaning'], rows)}")
    kinds = [
        [family, ", ".join(f"`{kind}`" for kind in names.split(", ")), meaning]
        for family, meanings in KIND_MEANINGS.items()
        for names, meaning in meanings.items()
    ]
    parts.append(f"## Kinds of effects\n\n{make_table(['family', 'kinds', 'columns'], kinds)}")
    events = [
        [", ".join(f"`{event}`" for event in names.split(", ")), *(text or "—" for text in columns)]
        for names, columns in EVENT_COLUMNS.items()
    ]
    header = ["event", *(f"`{name}`" for name in EventColumns._fields)]
    parts.append(f"## Events of the example broker\n\n{make_table(header, events)}")
    looks = [[", ".join(f"`{what}`" for what in names.split(", ")), text] for names, text in LOOK_MEANINGS.items()]
    parts.append(f"## Kinds of looks\n\n{make_table(['`what`', 'columns'], looks)}")
    return "\n".join(parts)


API_SECTIONS = {
    "Tests": ("assay.harness.run.experiment", "assay.harness.run.settings", "assay.harness.run.workload_mix"),
    "Generators": ("assay.harness.core.generator",),
    "Operations and clients": (
        "assay.harness.core.operation", "assay.harness.core.client", "assay.harness.core.blocking",
    ),
    "Systems and nodes": (
        "assay.cluster.system", "assay.cluster.node", "assay.cluster.runtime", "assay.cluster.sidecars",
    ),
    "Faults": (
        "assay.nemesis.faults.fault", "assay.nemesis.faults.process",
        "assay.nemesis.faults.abilities",
        "assay.nemesis.schedule.schedule", "assay.nemesis.schedule.target",
    ),
    "Checks": ("assay.checkers.check", "assay.checkers.engine"),
    "Models": ("assay.checkers.linearizability",),
}  # fmt: skip
"""Sections of the API's page, with their modules. Contracts have a separate page."""
MIX_SECTIONS = {
    "For every workload": LOG_MIXES,
    "For groups": GROUP_MIXES,
    "For offsets": OFFSETS_MIXES,
    "For groups of the old design": ZOOKEEPER_MIXES,
}


def make_api_page() -> str:
    homes = {module: names.split() for module, names in assay._HOMES.items()}
    parts = ["# Public API\n", "All names are imported from `assay`: `from assay import System, experiment, forbid`.\n"]
    lists = []
    for names in homes.values():
        for name in names:
            if name.endswith("_ANOMALIES"):
                lists.append([f"`{name}`", ", ".join(f"`{anomaly}`" for anomaly in getattr(assay, name))])
    for title, modules in API_SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in (name for module in modules for name in homes[module]):
            home = next(module for module in modules if name in homes[module])
            found = getattr(assay, name)
            home = found.__module__ if isinstance(found, type) and found.__module__.startswith("assay.") else home
            parts.append(f"::: {home}.{name}\n")
    parts.append("## Lists of anomalies\n\nPass them to `forbid`.\n")
    parts.append(make_table(["name", "anomalies"], lists))
    parts.append("## Contracts\n\nSee [contract fields](contract.md).\n")
    return "\n".join(parts)


def read_constants(path: Path) -> dict[str, str]:
    """Returns the constants of a module that are texts, such as the names of operations."""
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            (target,) = node.targets if isinstance(node, ast.Assign) else (node.target,)
            pairs = (
                zip(target.elts, node.value.elts, strict=True)
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                else [(target, node.value)]
            )
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[name.id] = value.value
    return found


def make_workloads_page() -> str:
    folder = ROOT / "workloads" / "generic"
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    return (
        "# Workloads\n\nEach module has operations, traffic and a contract for any system. Import it from "
        "`assay.workloads.generic`. [Which workload for which promise](../../concepts/workloads.md) helps to "
        "choose, and has an example.\n\n"
        + "".join(
            f"## {name}\n\n`from assay.workloads.generic import {name}`\n\n"
            f"::: assay.workloads.generic.{name}\n    options: {{show_root_heading: false}}\n\n"
            + make_table(
                ["constant", "value"],
                [[f"`{name}.{one}`", f"`{text!r}`"] for one, text in read_constants(folder / f"{name}.py").items()],
            )
            + "\n"
            for name in names
        )
    )


CLIENT_SECTIONS = {
    "Producer": ("producer.Producer", "callbacks.Callbacks", "config.ProducerConfig", "config.AsyncProducerConfig"),
    "Consumers": (
        "consumer.SimpleConsumer", "group_consumer.GroupConsumer", "group_consumer.GroupListener",
        "config.ConsumerConfig", "config.MemberConfig",
    ),
    "Groups of the old design": (
        "zookeeper_groups.connector.ConsumerConnector", "zookeeper_groups.config.ConnectorConfig",
    ),
    "Admin": ("admin.Admin", "admin.TopicOutcome"),
}  # fmt: skip
"""Sections of the page of the client library, with their classes."""


def make_client_page() -> str:
    parts = [
        "# Client classes of the example broker\n",
        "[The client library](../../broker/client.md) explains how to use them. The modules are those of "
        "`assay.system_under_test.client`.\n",
    ]
    for title, classes in CLIENT_SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [f"::: assay.system_under_test.client.{name}\n" for name in classes]
    return "\n".join(parts)


UNITS = {"_ms": "ms", "_bytes": "bytes", "_seconds": "s", "_percentage": "%"}


def make_settings_page() -> str:
    path = ROOT / "system_under_test" / "config.py"
    parts = [
        "# Settings of the example broker\n",
        "A setting that is not in these tables is an error. The defaults suit a cluster under test, in which faults of "
        "seconds must show.\n",
    ]
    for title, class_name, separator in (("Broker", "BrokerConfig", "_"), ("Topic", "TopicConfig", ".")):
        rows = []
        for name, kind, default, text in read_fields(path, class_name):
            unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
            shown = f"`{default}`" if default else "required"
            rows.append([f"`{name.replace('_', separator)}`", f"`{kind}`", unit, shown, to_markdown(text)])
        parts.append(f"## {title}\n\n{make_table(['setting', 'type', 'unit', 'default', 'meaning'], rows)}")
    return "\n".join(parts)


def make_defects_page() -> str:
    parts = [
        "# Defects of the example broker\n",
        "`--defect=NAME` switches one on. [Built-in defects](../../broker/defects.md) says how they are verified.\n",
    ]
    for one in DEFECTS.values():
        rows = [
            ["what is wrong", escape_markup(one.summary)],
            ["what shows it", escape_markup(one.fault)],
            ["reported anomalies", ", ".join(f"`{name}`" for name in one.anomalies)],
            ["known as", escape_markup(one.reference)],
            ["the run that catches it", f"`pytest {one.run} --defect={one.name}`"],
        ]
        parts.append(f"## {one.name}\n\n{make_table(['field', 'value'], rows)}")
    return "\n".join(parts)


def make_mixes_page() -> str:
    parts = ["# Mixes of the example broker\n", "`--workload-mix=NAME` adds one to a workload.\n"]
    for title, mixes in MIX_SECTIONS.items():
        rows = []
        for one in mixes:
            settings = "; ".join(f"`{name}`: {', '.join(values)}" for name, values in one.settings.items())
            rows.append([f"`{one.name}`", escape_markup(one.description), settings])
        parts.append(f"## {title}\n\n{make_table(['mix', 'what it does', 'settings that are drawn'], rows)}")
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "options": make_options_page,
    "cli": make_cli_page,
    "api": make_api_page,
    "workloads": make_workloads_page,
    "contract": make_contract_page,
    "faults": make_faults_page,
    "anomalies": make_anomalies_page,
    "history": make_history_page,
    "defects": make_defects_page,
    "mixes": make_mixes_page,
    "settings": make_settings_page,
    "client": make_client_page,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        path, text = FOLDER / f"{name}.md", make()
        if not path.exists() or path.read_text() != text:  # an unchanged page does not trigger a rebuild
            path.write_text(text)


if __name__ == "__main__":
    main()
