"""The pages in docs/ and the README: what they name exists, what they link to is there, and prose is wrapped."""

from __future__ import annotations

import ast
import importlib.util
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import assay
from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.data_sets import KINDS as EFFECTS
from assay.system_under_test.event_columns import EVENT_COLUMNS
from assay.system_under_test.groups import kill_points
from test_architecture import ALLOWED

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
GENERATED_FOLDER = ROOT / "docs" / "reference" / "generated"
PAGES = [README, *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent != GENERATED_FOLDER)]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
WIDTH = 120

FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4,}.*$", re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FILE = re.compile(r"^[\w./-]+\.(?:py|md|json|toml|yml|sql|html)$")
MODULE = re.compile(r"^assay(?:\.\w+)+$")

FOLDERS = (
    "benchmarks",
    "checkers",
    "cluster",
    "docs",
    "harness",
    "nemesis",
    "reports",
    "schedules",
    "src",
    "system_under_test",
    "tests",
    "workloads",
)
THE_BROKERS = {"system_under_test", "workloads"}
OF_A_RUN = {
    "run.json", "settings.json", "schedule.json", "verdict.json", "figures.json", "resources.json", "shrinking.json",
    "report.html", "planted.json", "closed.json", "through.json", "growth.json", "index.html", "trends.json",
    "replayed.json", "hosts.toml", "kv.py", "test_kv.py", "test_jobs.py",
}  # fmt: skip
"""Files that runs, stores and generated histories have, and that users write."""


OTHERS = {"--rootdir", "--no-deps", "--listen", "--docker"}
"""Options of pytest, pip and a server of the reader that pages name."""


def _load_generated() -> dict[str, Callable[[], str]]:
    """Loads docs/generate.py: name of a generated page to the function that returns its text."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, Callable[[], str]] = module.PAGES
    return pages


GENERATED = _load_generated()


@cache
def option_code() -> str:
    """The code that declares options."""
    folders = ("harness", "benchmarks", "system_under_test")
    return "".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return INDENTED.sub("", FENCED.sub("", page.read_text()))


def spans(page: Path) -> Iterator[str]:
    return (re.sub(r"\s+", " ", match.group(1)) for match in SPAN.finditer(prose(page)))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCED.sub("", page.read_text())))
    return {heading.replace(" ", "-") for heading in plain}


def missing_file(name: str) -> bool:
    """A path from the root, or the end of one: ``judge.py``, ``engine/base.py``."""
    if Path(name).name in OF_A_RUN or (ROOT / name).exists():
        return False
    return not any(
        path.as_posix().endswith(f"/{name}") for folder in FOLDERS for path in (ROOT / folder).rglob(Path(name).name)
    )


def missing_module(dotted: str) -> bool:
    """``assay.checkers.judging.judge``, or a name in a module: ``assay.checkers.judging.contract.forbid``."""
    *_, last = words = dotted.removeprefix("assay.").split(".")
    for path in (ROOT.joinpath(*words), ROOT.joinpath(*words).with_suffix(".py")):
        if path.exists():
            return False
    parent = ROOT.joinpath(*words[:-1])
    file = parent / "__init__.py" if parent.is_dir() else parent.with_suffix(".py")
    if file == ROOT / "__init__.py":
        file = ROOT / "src" / "assay" / "__init__.py"
    return not (file.exists() and re.search(rf"\b{last}\b", file.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert not [name for name in spans(page) if FILE.match(name) and missing_file(name)]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_folders_that_a_page_names_exist(page: Path) -> None:
    folders = re.compile(r"^(?:checkers|cluster|harness|nemesis|reports|system_under_test|tests|workloads)(?:/\w+)*/?$")
    assert not [name for name in spans(page) if folders.match(name) and not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    named = {name for name in spans(page) if MODULE.match(name)}
    named |= {
        f"{module}.{name.strip()}"
        for module, names in re.findall(r"^from (assay[\w.]*) import ([\w, ]+)$", page.read_text(), re.MULTILINE)
        for name in names.split(",")
    }
    assert not [name for name in sorted(named) if missing_module(name)]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for target in LINK.findall(prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if there.parent == GENERATED_FOLDER:  # the strict build of the site checks its anchors
            wrong += [] if there.stem in GENERATED else [target]
            continue
        if not there.exists() or (anchor and anchor not in anchors(there)):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_prose_is_wrapped(page: Path) -> None:
    lines = prose(page).splitlines()
    assert not [line for line in lines if len(line) > WIDTH and not line.startswith(("|", "<")) and " " in line.strip()]


def nav_pages(entries: Any) -> Iterator[str]:
    """Yields the pages of a part of the site's navigation."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inside in entry.values():
                yield from [inside] if isinstance(inside, str) else nav_pages(inside)


def test_the_navigation_of_the_site_has_every_page_once() -> None:
    nav = sorted(nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page != README}
    assert nav == sorted(pages | {f"reference/generated/{name}.md" for name in GENERATED})


def test_generated_pages_have_no_empty_cell_in_the_first_two_columns() -> None:
    for name, make in GENERATED.items():
        text = make()
        assert text.startswith("# "), name
        assert not re.findall(r"^\| *\||^\|[^|]+\| *\|", text, re.MULTILINE), name


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_system_that_is_explained_is_the_one_that_runs() -> None:
    """Every line of code in the section is in the workload."""
    section = (ROOT / "docs" / "guide" / "real_nodes.md").read_text().partition("## Run it")[0]
    workload = {line.strip() for line in (ROOT / "workloads" / "test_zookeeper.py").read_text().splitlines()}
    shown = [line.strip() for block in python_blocks(section) for line in block.splitlines()]
    assert shown
    assert not [line for line in shown if line and line not in workload]


GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("page", GUIDE, ids=[page.stem for page in GUIDE])
def test_the_guide_imports_the_tester_by_its_public_face(page: Path) -> None:
    imported = re.findall(r"^from assay\.([\w.]+) import", page.read_text(), re.MULTILINE)
    assert not [module for module in imported if module.split(".")[0] not in THE_BROKERS]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_python_blocks_are_python_and_their_imports_exist(page: Path) -> None:
    for block in python_blocks(page.read_text()):
        tree = (
            ast.parse(textwrap.dedent(block)) if not block.lstrip().startswith(("elif", "...")) else ast.Module([], [])
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "assay":
                assert not [name.name for name in node.names if name.name not in assay.__all__], page


def test_each_column_of_the_history_has_a_meaning() -> None:
    assert all(column.meaning for columns in DATA_SETS.values() for column in columns)


def test_the_pages_name_the_kinds_of_effects_that_there_are() -> None:
    page = GENERATED["history"]()
    table = page[page.index("| family | kinds") :].partition("\n\n")[0]
    rows = [(row.split("|")[1].strip(), SPAN.findall(row.split("|")[2])) for row in table.splitlines()[2:] if row]
    kinds = {name for _, names in rows for name in names}
    assert kinds == {name for names in EFFECTS.values() for name in names}
    assert {family for family, _ in rows} - {""} == set(EFFECTS)
    guide = (ROOT / "docs" / "cookbook" / "checking.md").read_text()
    families = guide[guide.index("| family | effects that it reads") :].partition("\n\n")[0]
    assert {name for row in families.splitlines() if row for name in SPAN.findall(row.split("|")[2])} <= kinds


ONE_MEANING = ("key", "position", "value", "owner")
"""Columns of events whose meaning the page says event by event."""
BY_OTHERS = {
    "partition-transition": {"key"},
    "replica-transition": {"key"},
    "assignment-written": {"key"},
    "reassignment-ended": {"key"},
    **{
        key: {"key", "owner"}
        for key in (kill_points.PARTLY_CALLED, kill_points.PARTLY_JOINED, kill_points.PARTLY_ASSIGNED)
    },
}
"""Events that are emitted by way of a helper, which gives these columns."""


def emitted() -> dict[str, set[str]]:
    """Event -> those of the columns that the broker gives it, by its code."""
    found: dict[str, set[str]] = {event: set(columns) for event, columns in BY_OTHERS.items()}
    for path in (ROOT / "system_under_test").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in ("emit", "_emit"):
                name = call.args[0]
                event = name.value if isinstance(name, ast.Constant) else getattr(kill_points, ast.unparse(name), None)
                if event is not None:
                    given = {keyword.arg or "" for keyword in call.keywords}
                    found.setdefault(event, set()).update(given & {*ONE_MEANING})
    return found


def test_the_page_of_the_history_says_what_the_columns_of_each_event_mean() -> None:
    said = {
        event: {column for column, meaning in columns._asdict().items() if meaning}
        for events, columns in EVENT_COLUMNS.items()
        for event in events.split(", ")
    }
    assert said == emitted()
    assert all(f"`{event}`" in GENERATED["history"]() for event in said)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_options_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+\b", page.read_text()))
    assert not [option for option in sorted(named - OTHERS) if f'"{option}"' not in option_code()]


def test_the_table_of_packages_is_that_of_the_architecture_test_and_goes_down() -> None:
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text()
    table = page[page.index("| package |") : page.index("The generic packages")]
    packages = {SPAN.findall(row)[0]: set(SPAN.findall(row.split("|")[3])) for row in table.splitlines()[2:] if row}
    assert packages == ALLOWED
    above: list[str] = []
    for package, imported in packages.items():
        assert not imported & set(above), package
        above.append(package)
