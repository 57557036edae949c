"""Prose is plain English: no words that docs/decisions/names.md rules out, no inverted or overlong sentences.

The check of sentences is a floor: ``helpers.prose`` finds what a simple program can see. ``LEFT`` counts the sentences
that still break a rule, and only falls.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.layout import ROOT
from helpers.prose import sentences

NOT_USED = (
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "anew",
    "amid",
    r"told(?! apart)",
    "hears of",
    "thereby",
    "thereof",
    "therein",
    "whither",
    "lest",
    r"how[- ]?manieth",
    "to be had",
    "as one likes",
    "comes? upon",
    "comes? past",
    "bitten",
    "bites?",
)
"""Regular expressions, matched as whole words."""

CLEAN = (
    "checkers",
    "cluster",
    "harness",
    "nemesis",
    "reports",
    "src/assay/__init__.py",
    "system_under_test",
    "workloads",
    "benchmarks",
    "docs",
    "README.md",
    "Makefile",
    "scripts",
    ".github",
)
"""Files and folders that are held to it."""

QUOTED = (
    ROOT / "tests/harness/stored/test_stored_formats.py",
    Path(__file__),
)
"""They have the words of older histories as data, and this file those that are not used."""
IN_NAMES = ("whoever", "nobody", "somebody", "anew", "told(?!_apart)")
"""Of those, the ones that tests and parts of names are held to as well: ``told_once`` and ``test_nobody_asks``, too."""

TEXT = {".py", ".md", ".html", ".css", ".js", ".sql", ".yml", ".toml", ""}
WRONG = re.compile(rf"(?<![\w-])({'|'.join(NOT_USED)})(?![\w-])", re.IGNORECASE)
WRONG_IN_NAMES = re.compile(rf"(?<=_)(?:{'|'.join(IN_NAMES)})(?![^\W_])|(?<![^\W_])(?:{'|'.join(IN_NAMES)})(?=_)")


def files(place: str) -> Iterator[Path]:
    start = ROOT / place
    assert start.exists(), f"{place} is not there any more: take it from the list"
    for path in [start] if start.is_file() else sorted(start.rglob("*")):
        if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts and path not in QUOTED:
            yield path


def prose(path: Path) -> str:
    """A file's text, without the list of words that are not used."""
    text = path.read_text()
    return text.partition("\n## Words not used")[0] if path.name == "names.md" else text


def found(place: str, pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in files(place)
        for number, line in enumerate(prose(path).splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


@pytest.mark.parametrize("place", CLEAN)
def test_words_that_the_glossary_rules_out_are_not_used(place: str) -> None:
    assert not found(place, WRONG)


@pytest.mark.parametrize("place", [*CLEAN, "tests"])
def test_nor_are_they_parts_of_names(place: str) -> None:
    assert not found(place, WRONG_IN_NAMES)


WRONG_IN_TESTS = re.compile(rf"(?<![\w-])(?:{'|'.join(IN_NAMES[:4])}|told(?! apart))(?![\w-])", re.IGNORECASE)


def test_tests_do_without_the_first_of_them() -> None:
    assert not found("tests", WRONG_IN_TESTS)


@pytest.mark.parametrize("name", ["told_once", "_told", "_announce_anew", "test_nobody_asks", "all_told", "told_"])
def test_compounds_are_seen(name: str) -> None:
    assert WRONG_IN_NAMES.search(name)


@pytest.mark.parametrize("name", ["told_apart", "test_they_are_told_apart", "renewed", "manewer_a", "a_toldo"])
def test_other_names_are_left_alone(name: str) -> None:
    assert not WRONG_IN_NAMES.search(name)


LEFT = {
    "benchmarks": 0,
    "checkers": 0,
    "cluster": 0,
    "docs": 0,
    "harness": 0,
    "nemesis": 0,
    "README.md": 0,
    "reports": 0,
    "src/assay/__init__.py": 0,
    "system_under_test": 0,
    "tests": 0,
    "workloads": 0,
}
"""Folder or file -> sentences that break a rule of STYLE, at most."""


@pytest.mark.parametrize("place", sorted(LEFT))
def test_sentences_are_plain(place: str) -> None:
    wrong = [
        f"{sentence.path.relative_to(ROOT)}:{sentence.line}: {', '.join(faults)}: {sentence.text[:80]}"
        for path in files(place)
        if path.suffix in (".py", ".md")
        for sentence in sentences(path)
        if (faults := sentence.faults())
    ]
    assert len(wrong) <= LEFT[place], "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "What is left over is removed.",
        "Of these, the newest.",
        "One that waits is woken.",
        "Where none is, nothing is.",
        "The same, for a topic.",
        "Those of others stay.",
        "It is to be played elsewhere.",
        "It waits, for it has no leader.",
        " ".join(["word"] * 31) + ".",
    ],
)
def test_each_rule_finds_its_sentence(tmp_path: Path, text: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'"""{text}"""\n')
    (sentence,) = sentences(module)
    assert sentence.faults()
    comment = tmp_path / "comment.py"
    comment.write_text(f"# {text}\nx = 1\n")
    assert [one.faults() for one in sentences(comment)] == [sentence.faults()]


@pytest.mark.parametrize(
    "text", ["Returns what is left over.", "What is left over?", "Of course it waits.", "Each waits for its leader."]
)
def test_a_plain_sentence_and_a_question_are_left_alone(tmp_path: Path, text: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'"""{text}"""\n')
    assert [one.faults() for one in sentences(module)] == [[]]


REFERENCE = re.compile(r":(?:func|class|meth|data|mod|attr|exc):`~?([^`<]+)`")


def test_each_reference_in_a_docstring_or_a_comment_is_to_something_that_exists() -> None:
    """A rename in code is easily forgotten in prose."""
    texts = {path: path.read_text() for folder in LEFT for path in sorted((ROOT / folder).rglob("*.py"))}
    names = set(dir(builtins)).union(*(path.relative_to(ROOT).with_suffix("").parts for path in texts))
    references = [reference for text in texts.values() for reference in REFERENCE.findall(text)]
    wanted = {name for reference in references for name in reference.strip(".").split(".")}
    for text in texts.values():
        if (wanted - names).isdisjoint(re.findall(r"\w+", text)):
            continue  # parsing all files takes several times as long as those that may define a name that is missing
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    names.add(node.name)
                case ast.Name(ctx=ast.Store()):
                    names.add(node.id)
                case ast.Attribute(ctx=ast.Store()):
                    names.add(node.attr)
                case ast.alias():
                    names.add((node.asname or node.name).partition(".")[0])
    broken = [
        f"{path.relative_to(ROOT)}: {reference}"
        for path, text in texts.items()
        for reference in REFERENCE.findall(text)
        if not names.issuperset(reference.strip(".").split("."))
    ]
    assert not broken


BACKQUOTED = re.compile(r"``([^`]+)``|(?<!`)`([^`\n]+)`(?!`)")
NAME_WITH_UNDERSCORE = re.compile(r"(?<!\w)[a-z]\w*_\w+")
NOT_OF_THE_PROJECT = {"run_forever", "to_pandas", "loop_config", "loop_info64", "like_N", "numba_config"}
"""Names of asyncio, pyarrow, numba and the kernel, and a pattern of names of columns."""


def test_each_name_in_backquotes_occurs_in_code() -> None:
    """A table of SQL, a field or a function is renamed in code, and easily forgotten in prose."""
    folders = LEFT.keys() - {"docs", "tests"}
    texts = {path: path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))}
    names = {part for path in texts for part in path.relative_to(ROOT).with_suffix("").parts} | NOT_OF_THE_PROJECT
    names.update(path.stem for folder in ("docs", "tests") for path in (ROOT / folder).rglob("*.*"))
    for text in texts.values():
        names.update(re.findall(r"\w+", BACKQUOTED.sub(" ", text)))
    stale = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for quoted in BACKQUOTED.finditer(text)
        for name in NAME_WITH_UNDERSCORE.findall(quoted[1] or quoted[2])
        if name not in names
    ]
    assert not stale, "no code has these names: correct them, or add them to NOT_OF_THE_PROJECT"
