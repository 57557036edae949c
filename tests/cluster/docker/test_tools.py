"""Tests what is added to an image, as the text of a Dockerfile, and what a build says on its way."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from assay.cluster.docker import image, image_contents, layer, tools
from assay.cluster.docker.image_contents import MANAGERS, TOOLS, ImageContents
from assay.cluster.docker.layer import ImageError

MISSING = ("sshd", "iptables", "iptables-restore", "ip", "python3", "pkill", "setpriv")


def text(found: ImageContents, packages: tuple[str, ...] = ()) -> str:
    return tools.render_dockerfile("assay=software", "theirs:1", found, packages, "assay-tools:1")


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        (
            "apt-get",
            "apt-get -q install -y --no-install-recommends "
            "openssh-server iptables iproute2 python3 procps util-linux redis \\",
        ),
        (
            "dnf",
            "RUN dnf -y --setopt=install_weak_deps=False install "
            "openssh-server iptables iproute python3 procps-ng util-linux redis && dnf clean all",
        ),
        (
            "microdnf",
            "RUN microdnf -y --setopt=install_weak_deps=0 install "
            "openssh-server iptables iproute python3 procps-ng util-linux redis && microdnf clean all",
        ),
        (
            "yum",
            "RUN yum -y install openssh-server iptables iproute python3 procps-ng util-linux redis && yum clean all",
        ),
        ("apk", "RUN apk add --no-cache openssh-server iptables iproute2 python3 procps setpriv redis"),
    ],
)
def test_each_package_manager_is_asked_once_for_what_is_missing_and_what_the_system_asks_for(
    manager: str, line: str
) -> None:
    made = text(ImageContents(MISSING, manager, "theirs"), ("redis",))
    assert any(found.endswith(line) for found in made.splitlines()), made
    assert "COPY --from=assay-tools" not in made


@pytest.mark.parametrize("manager", [*MANAGERS, None])
def test_an_image_that_lacks_nothing_gets_an_init_and_no_package(manager: str | None) -> None:
    made = text(ImageContents((), manager, "theirs"))
    steps = [line for line in made.splitlines() if line.startswith(("RUN", "COPY"))]
    settled = [
        f"{tools.TOOLS_FOLDER}/tini",
        "/etc/ssh/assay_sshd_config",
        f"{tools.TOOLS_FOLDER}/",
        f"{tools.TOOLS_FOLDER}/settle",
    ]
    assert [step.split()[-1] for step in steps] == settled
    assert "\nUSER 0\n" in made


@pytest.mark.parametrize("manager", MANAGERS)
def test_every_tool_is_in_some_package_of_every_manager(manager: str) -> None:
    assert set(tools.PACKAGES[manager]) == set(TOOLS)
    assert manager in tools.INSTALL


def test_without_a_package_manager_tools_are_copied_and_come_first() -> None:
    made = text(ImageContents(("sshd", "setpriv"), None, "theirs"))
    assert f"COPY --from=assay-tools:1 {tools.TOOLS_FOLDER} {tools.TOOLS_FOLDER}\n" in made
    assert f"RUN /bin/sh {tools.TOOLS_FOLDER}/settle sshd setpriv\n" in made


@pytest.mark.parametrize(
    ("missing", "packages", "said"),
    [
        (("sshd", "sed", "dd"), (), r"theirs:1 lacks dd, sed, and has no package manager .*add them in its Dockerfile"),
        (("sshd",), ("redis",), r"theirs:1 has no package manager .*apt-get, dnf.*could install redis"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_its_name(
    missing: tuple[str, ...], packages: tuple[str, ...], said: str
) -> None:
    ordered = tuple(tool for tool in TOOLS if tool in missing)
    with pytest.raises(ValueError, match=said):
        text(ImageContents(ordered, None, "theirs"), packages)


@pytest.mark.parametrize(
    ("said", "version", "platforms"),
    [
        ("3 9 glibc 2.17\n", "3.9", ["manylinux2014"]),
        ("3 11 glibc 2.36\n", "3.11", ["manylinux2014", "manylinux_2_28", "manylinux_2_34"]),
        ("3 12  \n", "3.12", ["musllinux_1_1", "musllinux_1_2"]),
    ],
)
@pytest.mark.parametrize(("architecture", "machine"), [("amd64", "x86_64"), ("arm64", "aarch64"), ("s390x", "s390x")])
def test_wheels_are_those_of_the_images_own_python_c_library_and_processors(
    said: str, version: str, platforms: list[str], architecture: str, machine: str
) -> None:
    found = image_contents.parse_interpreter(said, architecture)
    assert (found.version, found.platforms) == (version, tuple(f"{platform}_{machine}" for platform in platforms))


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", "x86_64"), ("arm64", "aarch64")])
def test_the_node_image_gets_wheels_for_the_processors_of_its_lower_layer(
    monkeypatch: pytest.MonkeyPatch, architecture: str, machine: str
) -> None:
    calls = list[list[str]]()

    def command(argv: Sequence[str], **_: object) -> CompletedProcess[str]:
        calls.append([*argv])
        missing = argv[:3] == ["docker", "image", "inspect"] and argv[-1] == image.image_reference()
        return CompletedProcess(argv, int(missing), f"{architecture}\n" if "{{.Architecture}}" in argv else "", "")

    monkeypatch.setattr(layer, "run_command", command)
    monkeypatch.setattr(layer, "docker_build", lambda *_, **__: None)
    image.ensure_node_image(lambda line: None)
    (download,) = [argv for argv in calls if "download" in argv]
    platforms = {word.removeprefix("--platform=") for word in download if word.startswith("--platform=")}
    assert platforms == {f"manylinux2014_{machine}", f"manylinux_2_28_{machine}", f"manylinux_2_34_{machine}"}


CLASSIC = """\
Sending build context to Docker daemon  2.048kB\r\r
Step 1/4 : FROM debian
 ---> 0123456789ab
Step 2/4 : RUN true
 ---> Using cache
 ---> 123456789abc
Step 3/4 : COPY a /a
 ---> 3123456789ab
Step 4/4 : RUN make
 ---> Running in 23456789abcd
\x1b[91mmake: no makefile
\x1b[0mThe command '/bin/sh -c make' returned a non-zero code: 2
"""
BUILDKIT = """\
#0 building with "default" instance using docker driver
#1 [internal] load build definition from Dockerfile
#1 DONE 0.0s
#4 [1/3] FROM docker.io/library/debian
#4 CACHED
#5 [stage-1 2/3] RUN true
#5 CACHED
#6 [stage-1 3/3] RUN make
#6 0.123 make: no makefile
#6 ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 2
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "steps"),
    [(CLASSIC, ["step 3/4, COPY a /a", "step 4/4, RUN make"]), (BUILDKIT, ["step 3/3, RUN make"])],
)
def test_steps_that_are_done_are_shown_and_the_one_that_fails_is_named(
    output: str, steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(output)
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\ncat {tmp_path}/said\nexit 2\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shown, lines = list[str](), list[str]()
    with pytest.raises(ImageError, match=rf"^{steps[-1]} failed:\n(?s:.*)make: no makefile\n(?s:.*)assay doctor"):
        layer.docker_build(["."], shown.append, on_line=lines.append)
    assert shown == steps
    assert any(line.endswith("make: no makefile") for line in lines)


def test_a_step_that_lasts_says_so_again_and_again_with_its_last_line() -> None:
    """The step ends when two reports have come, so it would last for ever without them."""
    shown: list[str] = []
    enough = threading.Event()

    def show(line: str) -> None:
        shown.append(line)
        if sum("so far" in one for one in shown) == 2:
            enough.set()

    step = layer.BuildStep(show, interval=0.001)

    def install() -> str:
        step.keep_line("Get:7 openjdk")
        step.keep_line("")
        enough.wait()
        return "built"

    assert step("packages", install) == "built"
    assert shown[0] == "packages ..."
    assert shown[-1] == "packages: built, 0 s"
    assert set(shown[1:-1]) == {"packages: 0 s so far: Get:7 openjdk"}


@pytest.mark.slow
def test_a_build_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Step 1/2 : FROM x'\nexec sleep 1000\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ImageError, match=r"step 1/2, FROM x did not end within 0\.2 s"):
        layer.docker_build(["."], lambda step: None, timeout=0.2)


def refuses_foreign(argv: Sequence[str], **_: object) -> CompletedProcess[str]:
    if argv[:2] == ["docker", "version"]:
        return CompletedProcess(argv, 0, "arm64\n", "")
    return CompletedProcess(argv, 1, "", "standard_init_linux.go:228: exec user process caused: exec format error\n")


def test_an_image_for_other_processors_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "run_command", refuses_foreign)
    with pytest.raises(ImageError, match=r"theirs:1 is for other processors .*\(arm64; .* build it for linux/arm64"):
        image_contents.examine_image("sha256:1", "theirs:1")


@pytest.mark.slow
def test_a_build_on_a_base_for_other_processors_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Step 2/2 : RUN true'\necho 'exec /bin/sh: exec format error'\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(layer, "run_command", refuses_foreign)
    with pytest.raises(ImageError, match="step 2/2, RUN true failed: its base image is for other processors"):
        layer.docker_build(["."], lambda line: None)


def test_debootstrap_makes_no_base_image_for_an_engine_with_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "run_command", refuses_foreign)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(layer, "_debootstrap", lambda: pytest.fail("the base image would be for this machine"))
    assert not layer.can_build()
    with pytest.raises(ImageError, match=r"for this machine \(x86_64\) instead of the engine \(arm64\).*docker load"):
        layer.ensure_layer(lambda line: None)
