"""Recognises the format of a file by its beginning."""

import enum
import stat
from pathlib import Path
from typing import Final

from assay.harness.foreign.jepsen_log import LINE
from assay.harness.foreign.malformed import MalformedError
from assay.harness.foreign.source import read_pieces

HEAD: Final = 1 << 18
"""Bytes that are examined. A log may begin with the set-up of the nodes."""


class ForeignFormat(enum.StrEnum):
    EDN = "edn"
    JEPSEN_LOG = "jepsen-log"


def recognise_format(path: Path) -> ForeignFormat:
    """Returns the format. Raises ``MalformedError`` for unknown formats and for pipes, and ``OSError``."""
    if path.suffix == ".edn":
        return ForeignFormat.EDN
    if not stat.S_ISREG(path.stat().st_mode):
        raise MalformedError(
            path,
            None,
            "this is no regular file, and reading the beginning of a pipe would consume it; name the format with "
            "--format=edn or --format=jepsen-log",
        )
    text = next(read_pieces(path, lambda done: None, HEAD))
    if LINE.search(text):
        return ForeignFormat.JEPSEN_LOG
    for line in text.splitlines():
        begin = line.strip(" \t,")
        if begin and not begin.startswith(";"):
            if begin[0] in "[({#":
                return ForeignFormat.EDN
            break
    raise MalformedError(
        path,
        None,
        "neither an EDN history (it begins with no [, (, { or #) nor a jepsen.log (no line such as "
        "`INFO  jepsen.util - 0 :invoke :read nil`); say which with --format=edn or --format=jepsen-log",
    )
