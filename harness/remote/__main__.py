"""``python -m assay.harness.remote --client MODULE:CLASS``: one worker process on a real machine."""

import asyncio
import contextlib
import ctypes
import logging
import os
import random
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Final

from assay.harness.remote import debugger
from assay.harness.remote.multiplexer import Multiplexer
from assay.harness.remote.runtime import ClientRuntime
from assay.harness.remote.server import make_acceptor, parse_arguments, run_worker

MAPPED_FROM, KEPT = -3, -1
"""Options of glibc: the size from which a block has pages of its own, and the free memory that it keeps."""
KEPT_MEMORY: Final = 4 << 20


async def serve(words: Sequence[str]) -> int:
    """Serves until SIGTERM or SIGINT, or until standard input ends if it serves on that."""
    options = parse_arguments(words)
    if options.streams:
        debugger.install(options.terminal)
    runtime = ClientRuntime(random.SystemRandom(), options.zookeeper)
    serving = _serve_standard_streams(runtime, words) if options.streams else run_worker(runtime, words)
    task = asyncio.ensure_future(serving)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


async def _serve_standard_streams(runtime: ClientRuntime, words: Sequence[str]) -> int:
    """Serves on standard input and output. Whatever clients print goes to standard error."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    loop, multiplexer = asyncio.get_running_loop(), Multiplexer(make_acceptor(runtime, words))
    await loop.connect_write_pipe(lambda: multiplexer, output)
    await loop.connect_read_pipe(lambda: multiplexer, sys.stdin)
    await multiplexer.wait_end()
    return 0


def keep_read_memory() -> None:
    """Lets the C library keep the memory into which asyncio reads: 256 KiB for each read, however few bytes arrive.

    Until it has freed a larger block, glibc gets such a block from the kernel and gives it back, at each read.
    """
    with contextlib.suppress(OSError, AttributeError):  # other C libraries have no such function
        set_option = ctypes.CDLL(None).mallopt
        set_option(MAPPED_FROM, KEPT_MEMORY)
        set_option(KEPT, KEPT_MEMORY)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # The soft limit may be below the number of connections of all clients.
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    keep_read_memory()
    sys.exit(asyncio.run(serve(sys.argv[1:])))
