"""Worker process of the pool: receives histories of keys and sends back a result for each.

    python -P -m assay.checkers.linearizability.worker FD

``FD`` is the file descriptor of the worker's end of a connection to the pool.

1. The first message is a model. The worker answers with None, or with the reason why it cannot load the model.
2. Each further message is a list of (number, history), and limits. The worker answers each history with (number,
   result) as soon as it is searched.

The worker ends when the pool's process ends, because the connection is then closed.
"""

import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Final

OOM_SCORE: Final = "500"
"""From -1000 to 1000. If memory runs out, the kernel should end this process rather than the pool's."""


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool ends its processes itself
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps the output of a model, because the pool discards stdout
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    connection: Connection = Connection(descriptor)
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks), daemon=True).start()
    try:
        pickle.loads(tasks.get())
        import assay.checkers.linearizability.searcher  # noqa: F401 - ready includes this slow import
        from assay.checkers.linearizability.key_search import search_history
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    while True:
        histories, limits = pickle.loads(tasks.get())
        for number, history in histories:
            connection.send((number, search_history(history, limits)))


def _listen(connection: Connection, tasks: SimpleQueue[bytes]) -> None:
    """Receives messages in a thread of its own, so that the process can end during a search if the pool is gone."""
    try:
        while True:
            tasks.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
