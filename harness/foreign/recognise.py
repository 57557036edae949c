"""Which format a file is in, by how it begins."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final

from harness.foreign.jepsen_log import LINE
from harness.foreign.malformed import MalformedError

HEAD: Final = 1 << 18
"""Bytes looked at. A log may begin with the set-up of the nodes."""


class Format(enum.StrEnum):
    EDN = "edn"
    JEPSEN_LOG = "jepsen-log"


def recognise(path: Path) -> Format:
    """Raises ``MalformedError`` when the file looks like neither, ``OSError``."""
    if path.suffix == ".edn":
        return Format.EDN
    with path.open("rb") as file:
        head = file.read(HEAD)
    text = head.decode("utf-8", "replace")
    if LINE.search(text):
        return Format.JEPSEN_LOG
    for line in text.splitlines():
        begin = line.strip(" \t,\ufeff")
        if begin and not begin.startswith(";"):
            if begin[0] in "[({#":
                return Format.EDN
            break
    if not head:
        raise MalformedError(path, None, "the file is empty; a history has at least one operation")
    raise MalformedError(
        path,
        None,
        "neither an EDN history (it begins with no [, (, { or #) nor a jepsen.log (no line such as "
        "`INFO  jepsen.util - 0 :invoke :read nil`); say which with --format=edn or --format=jepsen-log",
    )
