"""``assay serve STORE``: serves the page of a store and the files of its runs over HTTP, only to this machine."""

import argparse
import errno
import hashlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.harness.cli.command import ExitCode, InputError, describe_input_error, note, parse_count
from assay.harness.cli.index import add_options, build_page_renderer

if TYPE_CHECKING:
    from assay.reports.index.page import RenderedPage

LOOPBACK: Final = "127.0.0.1"
MIN_PAUSE: Final = 3.0
"""Minimum seconds between two readings of the store."""
PAUSE_FACTOR: Final = 5.0
"""The pause between two readings is at least this multiple of the duration of one."""

MOST_CONNECTIONS: Final = 64
REQUEST_SECONDS: Final = 30.0
"""Maximum seconds of silence of a client, in its request or while it takes the answer."""
WAIT_SECONDS: Final = 0.5
"""Seconds that the server waits at a time for the end of a connection."""
LIVE: Final = b'data-live="1"'
"""Mark of a page that a server renews. The server replaces the 1 by a hash of the page."""
SANDBOX: Final = "sandbox allow-scripts allow-downloads"
"""Content security policy for files of runs. Scripts in them can read neither the page nor other files of the server.
Downloads are allowed, because a report can export its history as EDN.
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("serve", help="serve the live page of a store on this machine", description=(
        "Serves the page of `assay index` and the runs' files on the loopback address. The page is renewed while "
        "runs are added, and reloads itself."))  # fmt: skip
    add_options(parser)
    parser.add_argument(
        "--port",
        type=parse_count,
        default=8020,
        metavar="N",
        help="port of the page; 0 takes any free port (default: 8020)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> ExitCode:
    render = partial(build_page_renderer(arguments), True)
    render()  # reports wrong input here, and not in a browser
    try:
        server = open_server(arguments.store.resolve(), render, arguments.port)
    except (OSError, OverflowError) as error:
        raise InputError(f"--port={arguments.port}: {error}; --port=0 takes any free port") from error
    note(f"http://{LOOPBACK}:{server.server_port}/ shows {arguments.store}; Ctrl-C ends it")
    with server:
        server.serve_forever()
    return ExitCode.PASS


def open_server(root: Path, render: "Callable[[], RenderedPage]", port: int) -> ThreadingHTTPServer:
    """Opens the server. ``root`` must be a path without symbolic links. Raises ``OSError`` if the port is taken."""
    return PageServer((LOOPBACK, port), partial(StoreRequestHandler, root, PageCache(render)))


class PageServer(ThreadingHTTPServer):
    """Server with a thread for each connection, and at most ``MOST_CONNECTIONS`` of them.

    A further connection waits until another one ends, which takes at most ``REQUEST_SECONDS`` if its client is silent.
    """

    def __init__(self, *arguments: Any) -> None:
        self._room = threading.Semaphore(MOST_CONNECTIONS)
        super().__init__(*arguments)

    def get_request(self) -> Any:
        if not self._room.acquire(timeout=WAIT_SECONDS):
            raise BlockingIOError(errno.EAGAIN, "all connections are in use")  # the server's loop tries again
        try:
            return super().get_request()
        except BaseException:
            self._room.release()
            raise

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection. The server calls it once for each connection that it has accepted."""
        try:
            super().shutdown_request(request)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that hang up, as browsers do when a page is left early."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class PageCache:
    """Cache of the page. A request renders it again if enough time has passed since the last rendering.

    While the page cannot be rendered because of its input, such as a file that is being edited, the last page stays.
    """

    def __init__(self, render: "Callable[[], RenderedPage]", clock: Callable[[], float] = time.monotonic) -> None:
        self._make_page = render
        self._clock = clock
        self._lock = threading.Lock()
        self._next = -float("inf")
        self._page = b""
        self._problem: str | None = None

    def get(self) -> bytes:
        with self._lock:
            began = self._clock()
            if began >= self._next:
                self._render()
                self._next = self._clock() + max(MIN_PAUSE, PAUSE_FACTOR * (self._clock() - began))
            return self._page

    def _render(self) -> None:
        """Renders the page. An error in the input is printed once, in one line."""
        try:
            self._page, problem = self._make_page().html.encode(), None
        except Exception as error:
            problem = describe_input_error(error)
            if problem is None:
                raise
            self._page = self._page or f"<!DOCTYPE html><title>assay</title><pre>{escape(problem)}</pre>".encode()
        if problem not in (None, self._problem):
            note(f"{problem}; the last page is shown until this is fixed")
        self._problem = problem


class StoreRequestHandler(SimpleHTTPRequestHandler):
    """Serves the page, and only files below ``root`` after links are resolved. Files of runs are sandboxed."""

    timeout = REQUEST_SECONDS
    path = ""
    """The base class sets it for each request line that it can parse."""

    def __init__(self, root: Path, cache: PageCache, *arguments: Any) -> None:
        self._root = root
        self._cache = cache
        super().__init__(*arguments, directory=str(root))

    def send_head(self) -> Any:
        # Protects from DNS rebinding: if another site's name leads to this address, its requests name it as Host.
        # A browser omits port 80.
        host, _, port = self.headers.get("Host", "").partition(":")
        if host.lower() not in (LOOPBACK, "localhost") or not (port.isdecimal() or not port):
            self.send_error(HTTPStatus.FORBIDDEN, "only for this machine")
            return None
        if self.path.partition("?")[0] in ("/", "/index.html"):
            return self._send_page()
        try:
            path = self.translate_path(self.path)
            # The base class answers a request for a folder with the folder's index page, if there is one.
            allowed = all(map(self._is_inside, [path, *self._list_index_pages(path)]))
        except ValueError:
            allowed = False
        if not allowed:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _is_inside(self, path: str) -> bool:
        """Returns whether a path leads to a folder or regular file below the root.

        A FIFO may have no writer, so reading it could block forever.
        """
        real = os.path.realpath(path)
        return real.startswith(f"{self._root}{os.sep}") and (os.path.isfile(real) or os.path.isdir(real))

    @staticmethod
    def _list_index_pages(folder: str) -> list[str]:
        pages = (os.path.join(folder, name) for name in ("index.html", "index.htm"))
        return [page for page in pages if os.path.lexists(page)]

    def _send_page(self) -> Any:
        page = self._cache.get()
        tag = hashlib.sha256(page).hexdigest()[:16]
        page = page.replace(LIVE, f'data-live="{tag}"'.encode(), 1)  # the page compares it to detect a newer one
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("ETag", f'"{tag}"')
        self.end_headers()
        return io.BytesIO(page)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.path.partition("?")[0] not in ("/", "/index.html"):
            self.send_header("Content-Security-Policy", SANDBOX)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Logs nothing, instead of a line for each request."""
