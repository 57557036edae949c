"""etcd's gateway, asked through HTTP of a server that is made up."""

from __future__ import annotations

import gc
import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from assay.workloads.systems.etcd_gateway import TROUBLE, ask, encode_text


class Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # as etcd's: it leaves the connection open

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(503 if self.path == "/v3/away" else 200)
        body = json.dumps({"path": self.path, "asked": request}).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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
    key = encode_text("r0")
    assert ask(address, "kv/range", key=key) == {"path": "/v3/kv/range", "asked": {"key": "cjA="}}


def test_a_refusal_is_trouble_and_leaves_no_socket_open(address: str) -> None:
    def refused() -> list[object]:
        try:
            return [ask(address, "away")]
        except TROUBLE as error:
            ring: list[object] = [error]
            ring.append(ring)  # as tracebacks are: it is collected some day, with what it holds
            return [True]

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert refused() == [True]
        gc.collect()
    assert not seen


def test_no_one_there_is_trouble() -> None:
    with pytest.raises(TROUBLE):
        ask("127.0.0.1:1", "kv/range")
