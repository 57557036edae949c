"""etcd's gateway, asked through HTTP of a server that is made up."""

from __future__ import annotations

import gc
import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from assay.workloads.etcd_gateway import TROUBLE, ask, text


class Gateway(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(503 if self.path == "/v3/away" else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"path": self.path, "asked": request}).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_is_json_and_so_is_its_answer(address: str) -> None:
    key = text("r0")
    assert ask(address, "kv/range", key=key) == {"path": "/v3/kv/range", "asked": {"key": "cjA="}}


def test_a_refusal_is_trouble_and_leaves_no_socket_open(address: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(TROUBLE):
            ask(address, "away")
        gc.collect()
    assert not seen


def test_no_one_there_is_trouble() -> None:
    with pytest.raises(TROUBLE):
        ask("127.0.0.1:1", "kv/range")
