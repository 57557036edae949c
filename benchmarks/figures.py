"""Command lines, output and memory measurement of all benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SAMPLE_SECONDS: Final = 0.5


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the module's docstring as its help, and ``--json``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, text to stderr")
    return parser


def numbers(text: str) -> list[int]:
    """Parses ``1,1000``."""
    return [int(number) for number in text.split(",")]


def names(text: str) -> list[str]:
    """Parses ``log,register``."""
    return text.split(",")


@contextmanager
def open_folder(folder: Path | None) -> Iterator[Path]:
    """Gives ``folder``, which is kept, or a temporary folder, which is removed."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as temporary:
        yield Path(temporary)


def read_resident_bytes(process: int) -> int:
    """Returns the resident bytes of a process and its descendants."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        tasks = [task.read_text() for task in Path(f"/proc/{process}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0
    return pages * resource.getpagesize() + sum(
        read_resident_bytes(int(child)) for one in tasks for child in one.split()
    )


@dataclass
class Peak:
    """Maximum number of bytes seen."""

    bytes: int = 0


@contextmanager
def track_peak_memory() -> Iterator[Peak]:
    """Samples the memory of this process and its descendants twice a second, and once more at the end."""
    peak, over = Peak(), threading.Event()

    def look() -> None:
        while True:
            ended = over.wait(SAMPLE_SECONDS)
            peak.bytes = max(peak.bytes, read_resident_bytes(os.getpid()))
            if ended:
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Output:
    """Prints text during the measurement, and figures at the end."""

    as_json: bool

    def text(self, line: str) -> None:
        print(line, file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def figures(self, figures: Mapping[str, Any]) -> None:
        """Prints the figures if ``--json`` was given."""
        if self.as_json:
            print(json.dumps(figures))
