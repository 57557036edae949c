"""Wheels for an image: downloaded, or built where a package has only a source distribution. No network is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from assay.cluster.docker import layer
from assay.cluster.docker.image_contents import ImagePython
from assay.cluster.docker.layer import ImageError
from assay.cluster.docker.wheels import download

from helpers.package_index import put_source, put_wheel

pytestmark = pytest.mark.slow

OTHER = ImagePython("3.9", ("manylinux2014_x86_64",))
"""Not the Python that builds."""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which alone pip looks for packages; it has a wheel of pip."""
    found = tmp_path / "index"
    found.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(found))
    put_wheel(found, "pip")
    return found


def downloaded(folder: Path, *names: str) -> tuple[list[str], str]:
    """The wheels that there are then, and what was reported."""
    target, said = folder / "wheels", list[str]()
    target.mkdir()
    said.append(download(names, OTHER, target, said.append))
    return sorted(path.name.partition("-")[0] for path in target.iterdir()), "\n".join(said)


def test_packages_that_have_only_source_distributions_are_built_into_wheels(index: Path, tmp_path: Path) -> None:
    put_source(index, "sourced", needs="deeper (>=1.0)")
    put_source(index, "sourced", version="2.0", first="raise SystemExit('not to be built')")
    put_source(index, "deeper")
    put_wheel(index, "wheeled")
    put_source(index, "wheeled", version="2.0", first="raise SystemExit('not to be built')")
    found, said = downloaded(tmp_path, "sourced==1.0", "wheeled")
    assert found == ["deeper", "pip", "sourced", "wheeled"]
    assert "sourced==1.0 has no wheel for Python 3.9: it is built here from its source" in said
    assert said.endswith("downloaded, sourced==1.0, deeper>=1.0 built")


MISSING = """\
ERROR: Could not find a version that satisfies the requirement odd (from versions: none)
ERROR: No matching distribution found for odd
"""
FAILED = """\
  error: subprocess-exited-with-error
  gcc: not found
error: metadata-generation-failed
hint: See above for details.
"""
OFFLINE = "WARNING: Retrying\nERROR: Could not install packages due to an OSError: no route to host\n"


@pytest.mark.parametrize(
    ("downloading", "building", "first", "last"),
    [
        (OFFLINE, "", "pip: ERROR: Could not install packages due to an OSError: no route to host", None),
        (MISSING, MISSING, "odd has no wheel, .*: ERROR: No matching distribution found for odd", None),
        (MISSING, FAILED, "odd has no wheel, .* source distribution: error: metadata-generation-failed", "hint: See.*"),
        (MISSING, "odd-1-cp311-cp311-linux_x86_64.whl", r"odd has only .*x86_64.whl\).*Software\(dockerfile=.*", None),
        (MISSING, "odd-1-py3-none-any.whl", "pip: ERROR: No matching distribution found for odd", None),
    ],
)
def test_an_error_begins_with_the_last_line_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, downloading: str, building: str, first: str, last: str | None
) -> None:
    """Also where a wheel that was built does not help: it is not built again and again."""

    def command(argv: Sequence[str], **_: Any) -> CompletedProcess[str]:
        if "wheel" in argv and building.endswith(".whl"):
            (tmp_path / building).touch()
            return CompletedProcess(argv, 0, "", "")
        return CompletedProcess(argv, 1, "", building if "wheel" in argv else downloading)

    monkeypatch.setattr(layer, "run_command", command)
    with pytest.raises(ImageError) as caught:
        download(["odd"], OTHER, tmp_path, lambda line: None)
    line, *more = str(caught.value).splitlines()
    assert re.fullmatch(first, line)
    assert last is None or re.fullmatch(last, more[-1])
