"""``assay index`` and ``assay serve``: exit codes, errors, and a server that serves the store alone, here alone."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from assay.cluster.owner import current_owner
from assay.harness.cli import serve
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.cli.serve import PageCache, PageServer, open_server
from assay.harness.nightly.night_record import AttemptOutcome as Outcome
from assay.reports.index.known import KnownFailuresError

from helpers.morning_store import HOSTILE, LAST, Made, cell, night, result, write
from helpers.served import serving

MARK = """\
[[failure]]
system = "broker"
workload = "test_log"
anomalies = ["lost-write"]
reason = "being repaired"
expires = {expires}
"""


def red(root: Path) -> Path:
    write(root, Made(verdict="fail", anomalies=("lost-write",)))
    return root


def test_the_page_is_written_into_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(red(tmp_path))]) == ExitCode.PASS
    assert capsys.readouterr().out.strip() == str(tmp_path / "index.html")
    assert "lost-write" in (tmp_path / "index.html").read_text()


def test_a_page_of_others_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = red(tmp_path) / "index.html"
    for text in ("<h1>my site</h1>", "<h1>my site</h1><footer>assay · "):
        page.write_text(text)
        assert main(["index", str(tmp_path)]) == ExitCode.USAGE
        assert f"{page}: this command did not make this file, and does not replace it" in capsys.readouterr().err
        assert page.read_text() == text
    page.unlink()
    assert [main(["index", str(tmp_path)]) for _ in range(2)] == [ExitCode.PASS] * 2


@pytest.mark.parametrize("there", [False, True])
def test_a_link_of_the_user_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str], there: bool) -> None:
    page = red(tmp_path) / "index.html"
    if there:
        assert main(["index", str(tmp_path)]) == ExitCode.PASS
        page.rename(tmp_path / "public.html")
    page.symlink_to("public.html")
    assert main(["index", str(tmp_path)]) == ExitCode.USAGE
    assert f"{page}: this is a symbolic link" in capsys.readouterr().err
    assert page.is_symlink()
    assert (tmp_path / "public.html").exists() is there


@pytest.mark.parametrize(
    ("expires", "code"), [(None, ExitCode.FAIL), ("9999-12-31", ExitCode.PASS), ("2020-01-01", ExitCode.FAIL)]
)
def test_the_exit_code_says_whether_a_failure_is_unmarked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expires: str | None, code: ExitCode
) -> None:
    red(tmp_path / "store")
    options = []
    if expires is not None:
        (tmp_path / "known.toml").write_text(MARK.format(expires=expires))
        options = [f"--known={tmp_path / 'known.toml'}"]
    assert main(["index", str(tmp_path / "store"), *options]) == ExitCode.PASS
    assert main(["index", str(tmp_path / "store"), "--check", *options]) == code
    assert ("broker, test_log: lost-write" in capsys.readouterr().err) is (code is ExitCode.FAIL)


def test_without_a_failure_there_is_nothing_to_mark(tmp_path: Path) -> None:
    write(tmp_path, Made())
    assert main(["index", str(tmp_path), "--check"]) == ExitCode.PASS


HERE = str(current_owner())
DEAD = str(dataclasses.replace(current_owner(), started=1))
ELSEWHERE = "7.1.another-boot.1"
BEGAN = {"loop": 0.0, "wall": 1.0}


@pytest.mark.parametrize(
    ("recorded", "code"),
    [
        ({"status": "finished", "owner": DEAD, "in_use": True}, ExitCode.UNKNOWN),
        ({"status": "interrupted", "owner": DEAD}, ExitCode.UNKNOWN),
        ({"status": "running", "owner": DEAD}, ExitCode.UNKNOWN),
        ({"status": "running", "owner": ELSEWHERE, "machine": "theirs"}, ExitCode.UNKNOWN),
        ({"status": "error", "owner": DEAD, "origin": BEGAN}, ExitCode.UNKNOWN),
        ({"status": "error", "owner": DEAD}, ExitCode.PASS),
        ({"status": "running", "owner": HERE}, ExitCode.PASS),
        ({"status": "finished", "owner": HERE, "in_use": True}, ExitCode.PASS),
    ],
)
def test_a_run_that_was_cut_short_before_its_verdict_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recorded: dict[str, Any], code: ExitCode
) -> None:
    """Only a session of this machine that still judges it is waited for, and a cluster that never started is no run."""
    run = write(tmp_path, Made(verdict=None))
    content = msgspec.json.decode((run / "run.json").read_bytes())
    (run / "run.json").write_bytes(msgspec.json.encode(content | recorded))
    assert main(["index", str(tmp_path), "--check"]) == code
    named = f"has no verdict, and may have failed: {run.parent.name}/{run.name}: " in capsys.readouterr().err
    assert named is (code is ExitCode.UNKNOWN)
    assert main(["index", str(tmp_path)]) == ExitCode.PASS


def test_a_run_without_a_verdict_whose_night_says_why_counts_there(tmp_path: Path) -> None:
    run, of = write(tmp_path, Made(verdict=None)), cell("test_log", "kill")
    name = f"{run.parent.name}/{run.name}"
    for outcome, code in ((Outcome.HUNG, ExitCode.PASS), (Outcome.UNKNOWN, ExitCode.UNKNOWN)):
        night(tmp_path, LAST, [of], [result(of, outcome, name)])
        assert main(["index", str(tmp_path), "--check"]) == code


def test_a_run_with_a_defect_is_no_failure_without_a_verdict(tmp_path: Path) -> None:
    write(tmp_path, Made(verdict=None, defect="forgetful"))
    assert main(["index", str(tmp_path), "--check"]) == ExitCode.PASS


def test_the_file_of_the_repository_is_read_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    red(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known-failures.toml").write_text(MARK.format(expires="9999-12-31"))
    assert main(["index", "--check"]) == ExitCode.PASS


@pytest.mark.parametrize("known", [None, "[[failure]]\n"])
def test_a_file_that_is_missing_or_wrong_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], known: str | None
) -> None:
    red(tmp_path / "store")
    if known is not None:
        (tmp_path / "known.toml").write_text(known)
    assert main(["index", str(tmp_path / "store"), f"--known={tmp_path / 'known.toml'}"]) == ExitCode.USAGE
    assert "known.toml" in capsys.readouterr().err


def test_no_store_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(tmp_path / "none")]) == ExitCode.USAGE
    assert "is not a folder" in capsys.readouterr().err


def answer(port: int, path: str, host: str = "127.0.0.1:1", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[int, Path, list[int]]]:
    """The port, the store, and how often its page was made."""
    root, made = (tmp_path / "store").resolve(), [0]
    path = red(root)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "store-2").mkdir()
    (tmp_path / "store-2" / "secret").write_text("secret")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "away").symlink_to(tmp_path)
    (root / "latest").symlink_to(next(path.glob("w*/*")), target_is_directory=True)
    (root / "latest" / "logs").mkdir()
    (root / "latest" / "logs" / "n1.log").write_text(HOSTILE)

    def make() -> Any:
        made[0] += 1
        return SimpleNamespace(html=f"page {made[0]}")

    with serving(root, make) as port:
        yield port, root, made


def test_the_page_is_at_the_root_and_files_are_below_it(served: tuple[int, Path, list[int]]) -> None:
    port, _, made = served
    status, headers, body = answer(port, "/")
    assert (status, body) == (200, b"page 1")
    assert answer(port, "/", method="HEAD")[1]["etag"] == headers["etag"]
    assert made == [1], "asked for again at once, it is not made again"
    status, headers, body = answer(port, "/latest/logs/n1.log")
    assert (status, body.decode()) == (200, HOSTILE)
    assert headers["content-security-policy"] == "sandbox allow-scripts allow-downloads", "and no allow-same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert b"n1.log" in answer(port, "/latest/logs/")[2]


@pytest.mark.parametrize(
    "path",
    [
        "/../secret", "/%2e%2e/secret", "/..%2fsecret", "/latest/../../secret", "//../secret", "/..\\secret", "/out",
        "/away/secret", "/away/store-2/secret", "/away", "/../store-2/secret", "/%00", "/latest/%00", "/secret",
        "/....//secret", "/%c0%ae%c0%ae/secret", "/etc/passwd", "file:///etc/passwd", "http://127.0.0.1/../secret",
    ],
)  # fmt: skip
def test_nothing_outside_the_store_is_served(served: tuple[int, Path, list[int]], path: str) -> None:
    status, _, body = answer(served[0], path)
    assert status in (400, 404)
    assert b"secret" not in body.replace(path.encode(), b"")


@pytest.mark.parametrize("name", ["index.html", "index.htm"])
def test_a_folder_whose_page_leads_out_of_the_store_is_not_served(
    served: tuple[int, Path, list[int]], name: str
) -> None:
    port, root, _ = served
    folder = root / "folder"
    folder.mkdir()
    (folder / "note").write_text("a note")
    assert answer(port, "/folder/")[0] == 200
    (folder / name).symlink_to(root.parent / "secret")
    status, _, body = answer(port, "/folder/")
    assert status == 404
    assert b"secret" not in body


def test_a_fifo_is_not_served_and_no_one_waits_for_its_writer(served: tuple[int, Path, list[int]]) -> None:
    port, root, _ = served
    os.mkfifo(root / "latest" / "logs" / "n2.log")
    assert answer(port, "/latest/logs/n2.log")[0] == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example:80", "127.0.0.1:80:evil.example", "127.0.0.1:x"],
)
def test_a_request_under_another_name_gets_nothing(served: tuple[int, Path, list[int]], host: str) -> None:
    assert answer(served[0], "/", host)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.1:80", "LOCALHOST:8020"])
def test_a_request_under_the_printed_name_is_answered_with_or_without_a_port(
    served: tuple[int, Path, list[int]], host: str
) -> None:
    """A browser leaves out port 80."""
    assert answer(served[0], "/", host)[0] == 200


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the server has dealt with an error of a request."""
    event, original = threading.Event(), PageServer.handle_error

    def handle_error(self: PageServer, request: Any, client_address: Any) -> None:
        original(self, request, client_address)
        event.set()

    monkeypatch.setattr(PageServer, "handle_error", handle_error)
    return event


def test_a_client_that_hangs_up_is_no_news(
    tmp_path: Path, handled: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "large").open("wb") as large:
        large.truncate(200_000_000)
    with serving(tmp_path, lambda: SimpleNamespace(html="")) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert client.recv(10)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert handled.wait(60)
    assert capsys.readouterr().err == ""


def test_a_malformed_request_is_answered_and_no_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, lambda: SimpleNamespace(html="")) as port:
        for request in (b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as answer:
                client.sendall(request)
                assert b"Error code: " in answer.read()
    assert capsys.readouterr().err == ""


def test_an_error_of_the_server_is_news(
    tmp_path: Path, handled: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("no page")

    with serving(tmp_path, broken) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert handled.wait(60)
    assert "ZeroDivisionError: no page" in capsys.readouterr().err


def test_silent_clients_take_the_page_from_others_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(serve, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(serve.StoreRequestHandler, "timeout", 1.0)
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(serving(tmp_path, lambda: SimpleNamespace(html="page")))
        for _ in range(20):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b"GET / HTTP/1.1\r\n")
        time.sleep(0.3)
        assert threading.active_count() - before == 1 + 4
        assert answer(port, "/")[0] == 200


def test_the_server_is_on_the_loopback_address_alone(tmp_path: Path) -> None:
    with open_server(tmp_path, lambda: SimpleNamespace(html=""), 0) as server:  # type: ignore[arg-type, return-value]
        assert server.server_address[0] == "127.0.0.1"


def test_the_page_is_made_again_only_after_a_while_that_grows_with_its_cost() -> None:
    now, made = [0.0], []

    def make() -> Any:
        made.append(now[0])
        now[0] += 2.0
        return SimpleNamespace(html=str(now[0]))

    fresh = PageCache(make, lambda: now[0])
    for _ in range(40):
        fresh.get()
        now[0] += 1.0
    assert made == [0.0, 12.0, 24.0, 36.0], "two seconds each, then ten until the next"


def test_the_last_page_stays_while_a_file_is_damaged_and_the_problem_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now, problems = [0.0], iter([None, "line 1 is no TOML", "line 1 is no TOML", None, "line 1 is no TOML", OSError()])

    def make() -> Any:
        problem = next(problems)
        if isinstance(problem, OSError):
            raise FileNotFoundError(2, "No such file or directory", "store")
        if problem is not None:
            raise KnownFailuresError(problem)
        return SimpleNamespace(html=f"page of {now[0]:g}")

    cache, pages = PageCache(make, lambda: now[0]), []
    for _ in range(6):
        pages.append(cache.get().decode())
        now[0] += 10.0
    assert pages == ["page of 0"] * 3 + ["page of 30"] * 3
    said = "assay: line 1 is no TOML; the last page is shown until this is fixed"
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [said, said], "once each time"
    assert lines[2].startswith("assay: store: No such file or directory")


def test_a_page_that_never_was_is_the_problem() -> None:
    def make() -> Any:
        raise KnownFailuresError("<b> is no TOML")

    assert "&lt;b&gt; is no TOML" in PageCache(make, lambda: 0.0).get().decode()
