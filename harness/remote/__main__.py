"""``python -m assay.harness.remote --client MODULE:CLASS``: one worker process on a real machine."""

import asyncio
import logging
import random
import resource
import signal
import sys
from collections.abc import Sequence

from assay.harness.remote.runtime import ClientRuntime
from assay.harness.remote.server import parse_arguments, run_worker


async def serve(words: Sequence[str]) -> int:
    """Serves until SIGTERM or SIGINT."""
    task = asyncio.ensure_future(
        run_worker(ClientRuntime(random.SystemRandom(), parse_arguments(words).zookeeper), words)
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # The soft limit may be below the number of connections of all clients.
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    sys.exit(asyncio.run(serve(sys.argv[1:])))
