"""A store served as `assay serve` does it, by a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.harness.cli.serve import open_server


@contextmanager
def serving(root: Path, make: Callable[[], Any]) -> Iterator[int]:
    """Its port. ``make`` returns what has the page as ``html``."""
    with open_server(root, make, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
