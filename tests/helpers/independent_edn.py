"""A second reader of EDN, written apart from the one under test: it only matches brackets and strings.

It knows strings, characters, comments and brackets, and takes any other text as an atom.
"""

from __future__ import annotations

import re
from typing import Final

TOKEN: Final = re.compile(
    r"""[\s,]+|;[^\n]*|(?P<string>\#?"(?:[^"\\]|\\.)*")|(?P<char>\\(?:[A-Za-z0-9]+|.))|(?P<prefix>\#_|\#?\^)"""
    r"""|(?P<open>\#\{|\#:[^\s,{}()\[\]";]*|[\[({])|(?P<close>[\])}])|(?P<tag>\#[A-Za-z][^\s,;"()\[\]{}\\]*)"""
    r"""|(?P<opaque>\#<)|(?P<atom>[^\s,;"()\[\]{}]+)|(?P<bad>")|.""",
    re.DOTALL,
)
CLOSERS: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}


class Unbalanced(Exception):
    """A bracket or a string has no end, or a closing bracket has no beginning, so the values have no known end."""


def require_balance(text: str) -> None:
    """Raises ``Unbalanced`` if the brackets and strings of the text do not match."""
    expected: list[str] = []
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if kind == "open" and token in CLOSERS:
            expected.append(CLOSERS[token])
        elif kind == "bad" or (kind == "close" and (not expected or expected.pop() != token)):
            raise Unbalanced(token)
    if expected:
        raise Unbalanced(expected[-1])
