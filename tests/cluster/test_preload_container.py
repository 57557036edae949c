"""A container compiles the preloaded libraries if this machine has other processors, no Linux or no compiler."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from assay.cluster.docker import image, image_contents, layer, preload, target_container

HERE = {machine: name for name, machine in image_contents.MACHINES.items()}.get(platform.machine(), platform.machine())
OTHER = "amd64" if HERE == "arm64" else "arm64"


class FakeEngine:
    """An engine with a node image. ``calls``: the commands that it got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, architecture: str, failure: str = "") -> None:
        self.calls = list[list[str]]()
        self.images = {image.image_reference()}
        self.architecture, self.failure = architecture, failure
        monkeypatch.setattr(layer, "run_command", self.command)
        monkeypatch.setattr(layer, "docker_build", self.build)
        monkeypatch.setattr(layer, "command_environment", dict)
        monkeypatch.setattr(subprocess, "run", self.run)

    def command(self, argv: Sequence[str], **_: Any) -> CompletedProcess[str]:
        return CompletedProcess(argv, int(argv[-1] not in self.images), f"{self.architecture}\n", "")

    def build(self, options: Sequence[str], *_: object, **__: object) -> None:
        self.calls.append(["build", *options])
        if self.failure:
            raise layer.ImageError(self.failure)
        self.images.add(options[options.index("-t") + 1])

    def run(self, argv: Sequence[str], **options: Any) -> CompletedProcess[bytes]:
        assert options["input"] == preload.CLOCK.source.read_bytes()
        self.calls.append([*argv])
        return CompletedProcess(argv, 0, b"a library", b"")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "state_folder", lambda: tmp_path)
    monkeypatch.setattr(image, "state_folder", lambda: tmp_path)


def said(line: str) -> None:
    """Ignores a line of progress."""


def test_a_library_for_other_processors_is_compiled_in_a_container_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(monkeypatch, OTHER)
    assert not preload.compiles_here(OTHER)
    assert not preload.is_ready(OTHER)
    for _ in range(2):
        assert preload.compile_library(preload.CLOCK, OTHER, said) == b"a library"
    build, run = engine.calls
    assert build[0] == "build"
    assert run[:4] == ["docker", "run", "--rm", "-i"]
    assert preload.compiler_reference() in run
    assert f'-DSHIFT_FILE="{preload.CLOCK.file}"' in run
    assert preload.is_ready(OTHER)


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_machine_without_a_fitting_compiler_uses_a_container(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    engine = FakeEngine(monkeypatch, HERE)
    if system == "linux":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "platform", system)
    assert preload.compile_library(preload.CLOCK, HERE, said) == b"a library"
    assert len(engine.calls) == 2


@pytest.mark.parametrize(
    ("node", "wanted", "failure", "message"),
    [
        (OTHER, OTHER, "apt-get failed", "no container of the engine could compile clock.c: .*: apt-get failed"),
        (HERE, OTHER, "", f"the image is for {OTHER}, and the node image for {HERE}: build the image for linux/{HERE}"),
    ],
)
def test_the_reason_is_said_if_no_container_can_compile(
    monkeypatch: pytest.MonkeyPatch, node: str, wanted: str, failure: str, message: str
) -> None:
    FakeEngine(monkeypatch, node, failure)
    with pytest.raises(preload.PreloadError, match=message):
        preload.compile_library(preload.CLOCK, wanted, said)


def test_a_machine_without_the_static_c_library_compiles_hold_in_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: preload.CSource) -> bytes:
        raise preload.PreloadError("cannot find -lc")

    monkeypatch.setattr(layer, "image_architecture", lambda image: HERE)
    monkeypatch.setattr(preload, "compiles_here", lambda architecture: True)
    monkeypatch.setattr(preload, "compile_here", fail)
    monkeypatch.setattr(preload, "compile_in_container", lambda source, *_: source.name.encode())
    assert target_container.compile_hold("mine", said) == b"hold"
    monkeypatch.setattr(preload, "compile_in_container", lambda source, *_: fail(source))
    with pytest.raises(layer.ImageError, match="the program that starts processes in it could not be compiled: cannot"):
        target_container.compile_hold("mine", said)


def test_hold_is_compiled_without_the_libraries_of_its_image() -> None:
    assert "-static" in target_container.HOLD.command("cc", "hold.c", "hold")
    assert target_container.HOLD.source.read_text().startswith("/*")
