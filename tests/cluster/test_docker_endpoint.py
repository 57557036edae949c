"""The engine's address is found as the docker command finds it, once, and errors say what named it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from assay.cluster import docker_endpoint
from assay.cluster.docker import layer
from assay.cluster.docker_endpoint import LOCAL_SOCKET, Endpoint, EndpointError, Tls, find_endpoint, resolve_endpoint

from helpers.examples import some_of

CONTEXTS = {"socket": "unix:///run/other.sock", "far": "tcp://far.example:2376", "login": "ssh://me@far.example"}


def write_context(folder: Path, name: str, content: Any, *files: str) -> Path:
    """Writes a context as ``docker context create`` does. Returns its folder of TLS files, which get ``files``."""
    key = hashlib.sha256(name.encode()).hexdigest()
    meta, tls = folder / "contexts" / "meta" / key, folder / "contexts" / "tls" / key / "docker"
    meta.mkdir(parents=True, exist_ok=True)
    (meta / "meta.json").write_text(content if isinstance(content, str) else json.dumps(content))
    for file in files:
        tls.mkdir(parents=True, exist_ok=True)
        (tls / file).touch()
    return tls


def describe_context(name: str, host: str, **more: object) -> dict[str, Any]:
    return {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False, **more}}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    for name, host in CONTEXTS.items():
        write_context(folder, name, describe_context(name, host))
    return folder


def use(folder: Path, name: str | None) -> None:
    (folder / "config.json").write_text(json.dumps({} if name is None else {"currentContext": name}))


@pytest.mark.parametrize(
    ("host", "context", "current", "expected", "origin"),
    [
        ("tcp://one:1", "far", "login", "tcp://one:1", "from DOCKER_HOST"),
        (None, "far", "login", CONTEXTS["far"], "context far, from DOCKER_CONTEXT"),
        (None, None, "login", CONTEXTS["login"], "context login, the current one of "),
        (None, "default", "login", LOCAL_SOCKET, "the default"),
        (None, None, None, LOCAL_SOCKET, "the default"),
        ("", "", "socket", CONTEXTS["socket"], "context socket, the current one of "),
    ],
)
def test_the_first_of_host_context_and_current_context_decides(
    store: Path, host: str | None, context: str | None, current: str | None, expected: str, origin: str
) -> None:
    use(store, current)
    given_variables = {"DOCKER_HOST": host, "DOCKER_CONTEXT": context, "DOCKER_CONFIG": str(store)}
    found = find_endpoint({name: value for name, value in given_variables.items() if value is not None})
    assert found.host == expected
    assert found.origin.startswith(origin)


hosts = st.sampled_from(
    ["", "tcp://h", "tcp://h:2375", "tcp://", "h:99", "h", "unix://", "unix:///x", "ssh://u@h:22", "ssh://u@h", ":5",
     "tcp://[::1]:2375", " tcp://h:1 ", "tcp://u@h:1", "tcp://:5", "http://h:1", "TCP://h:1", "tcp://h:x"]
)  # fmt: skip
contexts = st.sampled_from([None, "", "default", "unknown", *CONTEXTS])


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command to compare with")
@settings(max_examples=some_of(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(host=hosts, context=contexts, current=contexts, tls=st.sampled_from([None, "DOCKER_TLS", "DOCKER_TLS_VERIFY"]))
@example(host="", context=None, current=None, tls="DOCKER_TLS_VERIFY")
@example(host="tcp://h", context=None, current=None, tls="DOCKER_TLS")
def test_the_docker_command_finds_the_same_endpoint(
    store: Path, host: str, context: str | None, current: str | None, tls: str | None
) -> None:
    use(store, current)
    for name in (docker_endpoint.CA, docker_endpoint.CERTIFICATE, docker_endpoint.KEY):
        (store / name).touch()
    variables = {"DOCKER_HOST": host, "DOCKER_CONFIG": str(store)}
    variables |= {"DOCKER_CONTEXT": context} if context is not None else {}
    variables |= {tls: "1"} if tls is not None else {}
    theirs = ask_docker(variables)
    try:
        ours = find_endpoint(variables)
    except EndpointError:
        assert theirs is None
        return
    assert theirs is not None
    assert ours.host == theirs["Endpoints"]["docker"]["Host"]
    if ours.host.startswith("tcp://"):
        assert (ours.tls is not None) == bool(theirs["TLSMaterial"])
        assert ours.tls is None or ours.tls.verify != theirs["Endpoints"]["docker"]["SkipTLSVerify"]
    # With the variables that the docker command gets, it must find this endpoint again.
    again = ask_docker({"DOCKER_CONFIG": str(store), **ours.variables()})
    assert again is not None
    assert again["Endpoints"]["docker"]["Host"] == ours.host


def ask_docker(variables: dict[str, str]) -> Any | None:
    """Returns how the docker command describes its endpoint, or None if it rejects the variables."""
    rest = {name: value for name, value in os.environ.items() if name not in docker_endpoint.VARIABLES}
    done = subprocess.run(["docker", "context", "inspect"], env=rest | variables, capture_output=True, text=True)
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def test_a_context_has_its_own_certificates(tmp_path: Path) -> None:
    tls = write_context(tmp_path, "far", describe_context("far", "tcp://far:2376"), "ca.pem", "cert.pem", "key.pem")
    found = find_endpoint({"DOCKER_CONTEXT": "far", "DOCKER_CONFIG": str(tmp_path), "DOCKER_TLS": "1"})
    assert found.tls == Tls(str(tls))
    assert found.variables() == {"DOCKER_CONTEXT": "far"}
    write_context(tmp_path, "lax", describe_context("lax", "tcp://far:2376", SkipTLSVerify=True))
    lax = find_endpoint({"DOCKER_CONTEXT": "lax", "DOCKER_CONFIG": str(tmp_path)})
    assert lax.tls is not None
    assert not lax.tls.verify


def test_folders_of_certificates_are_known_in_any_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").touch()
    write_context(tmp_path, "far", describe_context("far", "tcp://far:2376"), "ca.pem")
    for variables in (
        {"DOCKER_HOST": "tcp://h:1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "."},
        {"DOCKER_CONTEXT": "far", "DOCKER_CONFIG": "."},
    ):
        tls = find_endpoint(variables).tls
        assert tls is not None
        assert Path(tls.folder).is_absolute()


def test_a_context_without_certificates_is_named_by_its_address(store: Path) -> None:
    found = find_endpoint({"DOCKER_CONTEXT": "far", "DOCKER_CONFIG": str(store)})
    assert found.variables() == {"DOCKER_HOST": CONTEXTS["far"]}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DOCKER_CONTEXT": "gone"}, r"context gone, from DOCKER_CONTEXT: there is no context .* `docker context ls`"),
        ({"DOCKER_CONTEXT": "odd"}, r"context odd, from DOCKER_CONTEXT: .*meta.json has no Docker endpoint"),
        ({"DOCKER_CONTEXT": "list"}, r"context list, from DOCKER_CONTEXT: .*meta.json has no Docker endpoint"),
        ({"DOCKER_HOST": "http://h:1"}, r"http://h:1 \(from DOCKER_HOST\): this is no address .* tcp://HOST:PORT"),
        ({"DOCKER_HOST": "ssh://h/run/a.sock"}, r"ssh://h/run/a.sock \(from DOCKER_HOST\): this is no address"),
        ({"DOCKER_HOST": "tcp://h:1", "DOCKER_TLS_VERIFY": "1"}, r"there is no .*ca.pem, .* by DOCKER_CERT_PATH"),
    ],
)
def test_an_unusable_choice_is_one_line_with_its_origin_and_a_remedy(
    tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    write_context(tmp_path, "odd", "{")
    write_context(tmp_path, "list", "[]")
    with pytest.raises(EndpointError, match=said) as raised:
        find_endpoint({"DOCKER_CONFIG": str(tmp_path), **variables})
    assert "\n" not in str(raised.value)


DEEP = "[" * 100_000


@pytest.mark.parametrize("host", ["\ud800", "tcp://\ud800:1", "ssh://\ud800", "unix:///\ud800", "unix:///a\0b", "tcp://a..b",
                                  f"tcp://{'a' * 64}", "tcp://h:1\0"])  # fmt: skip
def test_a_context_whose_address_is_no_address_is_one_printable_line(tmp_path: Path, host: str) -> None:
    write_context(tmp_path, "odd", describe_context("odd", host))
    with pytest.raises(EndpointError, match=r"\(context odd, from DOCKER_CONTEXT\): this is no address") as raised:
        find_endpoint({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "odd"})
    assert "\n" not in str(raised.value)
    str(raised.value).encode()


def test_a_socket_may_have_any_name(tmp_path: Path) -> None:
    host = "unix:///" + os.fsdecode(b"\xff")
    assert find_endpoint({"DOCKER_HOST": host}).host == host


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff"), "\ud800"])
def test_a_context_whose_name_is_not_utf_8_is_one_printable_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        EndpointError, match=r"context \\ud(cff|800), from DOCKER_CONTEXT: th.*name another in"
    ) as raised:
        find_endpoint({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": name})
    str(raised.value).encode()
    use(tmp_path, name)
    with pytest.raises(EndpointError, match=r"context \\ud(cff|800), the current one of .*context use"):
        find_endpoint({"DOCKER_CONFIG": str(tmp_path)})


@pytest.mark.parametrize("content", [DEEP, "\udcff", "{", "[]", '{"currentContext": 3}'])
def test_damaged_settings_of_the_docker_command_are_ignored_as_it_does(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(os.fsencode(content))
    assert find_endpoint({"DOCKER_CONFIG": str(tmp_path)}).is_default


@pytest.mark.parametrize("content", [DEEP, "\udcff"])
def test_a_damaged_context_is_one_line(tmp_path: Path, content: str) -> None:
    write_context(tmp_path, "odd", "")
    key = hashlib.sha256(b"odd").hexdigest()
    (tmp_path / "contexts/meta" / key / "meta.json").write_bytes(os.fsencode(content))
    with pytest.raises(EndpointError, match=r"context odd, from DOCKER_CONTEXT: .*meta.json has no Docker endpoint"):
        find_endpoint({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "odd"})


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_settings_that_are_no_file_are_an_error_and_no_wait(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "config.json")
    with pytest.raises(EndpointError, match=r"config.json: this is a (FIFO|folder): put a regular file there"):
        find_endpoint({"DOCKER_CONFIG": str(tmp_path)})
    write_context(tmp_path, "odd", "")
    meta = tmp_path / "contexts/meta" / hashlib.sha256(b"odd").hexdigest() / "meta.json"
    meta.unlink()
    make(meta)
    with pytest.raises(EndpointError, match=r"context odd.*: this is a (FIFO|folder): put a regular file there"):
        find_endpoint({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "odd"})


def test_a_missing_current_context_is_named_with_its_file(tmp_path: Path) -> None:
    use(tmp_path, "gone")
    with pytest.raises(EndpointError, match=rf"context gone, the current one of {tmp_path}/config.json: .*context use"):
        find_endpoint({"DOCKER_CONFIG": str(tmp_path)})


def test_a_session_keeps_its_engine_when_another_context_becomes_current(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in docker_endpoint.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(store))
    use(store, "socket")
    assert resolve_endpoint().host == CONTEXTS["socket"]
    use(store, "far")
    assert resolve_endpoint().host == CONTEXTS["socket"]
    assert layer.command_environment()["DOCKER_HOST"] == CONTEXTS["socket"]
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    assert resolve_endpoint().host == CONTEXTS["far"]


def test_the_docker_command_gets_no_other_choice(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(store))
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", "/nowhere")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    environment = layer.command_environment()
    assert {name: environment[name] for name in docker_endpoint.VARIABLES if name in environment} == {
        "DOCKER_HOST": CONTEXTS["far"]
    }
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(layer.ImageError, match="context gone, from DOCKER_CONTEXT"):
        layer.command_environment()


def test_a_prefix_can_be_pasted_into_a_shell() -> None:
    odd = Endpoint("tcp://h:1", tls=Tls("/a folder", verify=False))
    assert odd.prefix() == "DOCKER_HOST=tcp://h:1 DOCKER_TLS=1 DOCKER_CERT_PATH='/a folder'"
