"""MkDocs hook: links to files outside docs/ become plain text, because the site does not contain those files."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


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
