"""MkDocs hooks: links to files that the site does not contain become plain text. Roles in docstrings become code."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
ROLE = re.compile(r":\w+:<code>~?(?:[\w.]+\.)?(\w+)</code>")
"""Matches a Sphinx role such as ``:class:`assay.System``` in the HTML that Markdown makes of it. The group is the last
part of the name, which the page shows."""


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Returns the page without links that lead out of docs/."""
    folder = posixpath.dirname(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        text, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match.group()
        path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
        return text if path.startswith("..") else match.group()

    return LINK.sub(replace, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Returns the page with ``:class:`System``` of a docstring as plain code."""
    return ROLE.sub(r"<code>\1</code>", html)
