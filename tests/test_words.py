"""Prose keeps to the vocabulary of docs/glossary.md: none of the words that it says are not used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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

FINDINGS = (
    "nobody ever saw it",
    "nobody ever began it",
    "nobody began to write it",
    "nobody wrote",
    "nobody sent it",
    "nobody {verb} it",
    "nobody appended twice",
    "Nobody of {row[",
    "the group began anew",
    "was told {row[",
    "was told to begin",
)
"""Sentences of findings, which stored runs hold as well: they stay as they are."""

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
    "tests/benchmarks",
    "tests/system_under_test/client",
    "tests/system_under_test/controller",
    "tests/system_under_test/groups",
    "tests/system_under_test/network",
    "tests/system_under_test/protocol",
    "tests/system_under_test/zookeeper",
)
"""Files and folders that are held to it."""

QUOTED = ROOT / "harness/core/history/format_1.py"
"""It has the words of older histories as data."""

TEXT = {".py", ".md", ".html", ".css", ".js", ".sql", ".yml", ".toml", ""}
WRONG = re.compile(rf"(?<![\w-])({'|'.join(NOT_USED)})(?![\w-])", re.IGNORECASE)


def files(place: str) -> Iterator[Path]:
    start = ROOT / place
    assert start.exists(), f"{place} is not there any more: take it from the list"
    for path in [start] if start.is_file() else sorted(start.rglob("*")):
        if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts and path != QUOTED:
            yield path


def prose(path: Path) -> str:
    """A file's text, without sentences of findings and the glossary's own list of words that are not used."""
    text = path.read_text()
    for sentence in FINDINGS:
        text = text.replace(sentence, "")
    return text.partition("\n## Words not used")[0] if path.name == "glossary.md" else text


@pytest.mark.parametrize("place", CLEAN)
def test_words_that_the_glossary_rules_out_are_not_used(place: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in files(place)
        for number, line in enumerate(prose(path).splitlines(), start=1)
        for match in WRONG.finditer(line)
    ]
    assert not wrong
