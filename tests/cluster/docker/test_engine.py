"""What is advised when the Docker engine does not do what it is asked; without an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, DockerException

from assay.cluster.docker import engine as module
from assay.cluster.docker.engine import EngineError, engine

TAKEN = 'Conflict. The container name "/assay-r1-n1" is already in use by container "0f3a". You have to remove it.'


def refused(status: int, said: str) -> APIError:
    response: Any = requests.Response()
    response.status_code, response.reason = status, "as it is"
    return APIError("refused", response=response, explanation=said)


def advice(monkeypatch: pytest.MonkeyPatch, error: Exception) -> str:
    """What is said when a call raises this."""
    monkeypatch.setattr(module, "_knock", lambda timeout: None)
    client = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(module.docker, "from_env", lambda timeout: client)
    with pytest.raises(EngineError) as raised, engine():
        raise error
    return str(raised.value)


def test_a_name_that_is_taken_says_whose_it_is_and_what_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = advice(monkeypatch, refused(409, TAKEN))
    assert "assay-r1-n1 is there already" in said
    assert "`assay heal`" in said
    assert "`docker rm -f assay-r1-n1`" in said
    assert "dockerd" not in said


@pytest.mark.parametrize(
    "error", [refused(409, "removal of container 0f3a is already in progress"), refused(500, "no space left on device")]
)
def test_an_engine_that_refuses_need_not_be_started(monkeypatch: pytest.MonkeyPatch, error: APIError) -> None:
    said = advice(monkeypatch, error)
    assert str(error.explanation) in said
    assert "`assay doctor`" in said
    assert "dockerd" not in said


@pytest.mark.parametrize("error", [DockerException("no answer"), requests.ConnectionError("reset")])
def test_one_that_breaks_off_may_have_to_be_started(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    assert "`dockerd`" in advice(monkeypatch, error)
