"""What all benchmarks share: ``--json``, and where their text and their figures go."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the module's docstring as its help, and ``--json``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, text to stderr")
    return parser


def numbers(text: str) -> list[int]:
    """``1,1000``, as an option's type."""
    return [int(number) for number in text.split(",")]


def names(text: str) -> list[str]:
    """``log,register``, as an option's type."""
    return text.split(",")


@dataclass(frozen=True)
class Output:
    """Text while it measures, figures at the end."""

    as_json: bool

    def text(self, line: str) -> None:
        print(line, file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def figures(self, figures: Mapping[str, Any]) -> None:
        """Prints them if they were asked for."""
        if self.as_json:
            print(json.dumps(figures))
