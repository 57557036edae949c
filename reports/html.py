"""Functions for all HTML pages, which are self-contained, have two themes, and are safe against hostile text.

Jinja escapes all text, embedded JSON contains no tags, and the content security policy allows only the page's own
scripts, by their hashes.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from assay.harness.core.printable import to_printable
from assay.reports.palette import DARK, LIGHT, iterate_css_variables

FOLDER: Final = Path(__file__).parent
LONGEST_NAME: Final = 26
"""Maximum number of characters of a key or another name in a table. Hovering shows the full name."""
LONGEST_TEXT: Final = 4_000
"""Maximum number of characters of any text in a page. The history has the full text."""
HEAD: Final = (
    rb'\s*<!doctype html>\s*<html lang="en">\s*<head>\s*<meta charset="utf-8">\s*'
    rb'<meta http-equiv="Content-Security-Policy" content="[^"<>]*">\s*<meta name="viewport" [^<>]*>\s*'
    rb'<meta name="color-scheme" [^<>]*>\s*'
)
"""Pattern of the beginning of every page, for the patterns that match the pages of one command."""

_INVISIBLE: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Invisible and bidirectional control characters."""


def build_environment(folder: Path = FOLDER) -> Environment:
    return Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=sanitize,
    )  # fmt: skip


def sanitize(value: Any) -> Any:
    """Sanitizes a value for a template: cuts text in its middle, and escapes invisible and bidirectional control
    characters.
    """
    if type(value) is not str:
        return value
    text = shorten_middle(value, LONGEST_TEXT)
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" else to_printable(one) for one in text)


def read_source(name: str) -> str:
    """Returns one of the package's styles or scripts."""
    return (FOLDER / name).read_text(encoding="utf-8")


def build_shell(scripts: Sequence[str], style: str, connect: str = "") -> dict[str, Any]:
    """Returns the values that every template needs. ``connect``: the origin that the page may contact."""
    return {
        "scripts": [Markup(script) for script in scripts],
        "policy": build_policy(scripts) + (f"; connect-src {connect}" if connect else ""),
        "style": Markup(style),
        "light": Markup(" ".join(iterate_css_variables(LIGHT))),
        "dark": Markup(" ".join(iterate_css_variables(DARK))),
    }


def shorten_middle(text: str, most: int = LONGEST_NAME) -> str:
    """Shortens a name in its middle to ``most`` characters, because names often differ only at the end."""
    tail = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def to_inline_json(value: Any) -> Markup:
    """Returns JSON for a script element. It has no ``<``, so that no end tag and no comment can begin.

    Invisible and bidirectional control characters are shown as escapes.
    """
    text = _INVISIBLE.sub(
        lambda found: f"\\\\u{ord(found[0]):04x}", msgspec.json.encode(value, enc_hook=_to_builtin).decode()
    )
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _to_builtin(value: Any) -> Any:
    """Converts the numpy scalars in Bokeh's JSON."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a plot holds {type(value).__name__}, which has no JSON form")


def build_policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
