"""A node counts as reachable if it shows the host key of the run at its address, also a moment after its start."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import paramiko
import pytest

from assay.cluster.docker import cluster

from helpers.ssh_machine import machine


def test_only_the_machine_with_the_host_key_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "REACH_SECONDS", 0.2)
    with machine() as there:
        assert cluster._is_reachable(there.login)
        other = replace(there.login, host_key=paramiko.ECDSAKey.generate())
        assert not cluster._is_reachable(other), "another machine has the address"
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # without listening: connections are refused
            assert not cluster._is_reachable(replace(there.login, port=unused.getsockname()[1]))


def test_a_port_that_opens_a_little_later_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals, real = iter(range(3)), socket.create_connection

    def connect(*arguments: Any) -> socket.socket:
        if next(refusals, None) is not None:
            raise ConnectionRefusedError
        return real(*arguments)

    monkeypatch.setattr(socket, "create_connection", connect)
    with machine() as there:
        assert cluster._is_reachable(there.login)
    assert next(refusals, None) is None, "it was refused at first"
