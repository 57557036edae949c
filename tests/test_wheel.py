"""The wheel: what is in it, and that it works in a project whose own folders are named like ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from helpers.layout import PARTS, ROOT

REGISTER = Path(__file__).parent / "helpers" / "installed_register.py"
DATA = (".html", ".css", ".js", ".sql", ".c", "Dockerfile", "py.typed")
OFFLINE = ("--no-deps", "--no-index", "--disable-pip-version-check", "-q")
INSTALL = ("install", "--no-compile", *OFFLINE)
"""Compiling all modules takes longer than compiling those that are imported then."""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    if tuple(map(int, metadata.version("setuptools").split(".")[:2])) < (70, 1):
        pytest.skip("setuptools below 70.1 cannot build a wheel by itself; `make venv` installs a newer one")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", *PARTS):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    folder = tmp_path_factory.mktemp("wheel")
    build = run(sys.executable, "-m", "pip", "wheel", *OFFLINE, "--no-build-isolation", "-w", folder, ".", cwd=source)
    assert build.returncode == 0, build.stdout + build.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; everything else it finds where this one has it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    install = run(sys.executable, "-m", "pip", "--python", python, *INSTALL, wheel, cwd=folder)
    assert install.returncode == 0, install.stdout + install.stderr
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three packages of the user's own, which a test of theirs imports by their own names."""
    for name in ("harness", "cluster", "workloads"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"MINE = {name!r}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_register.py").write_text(REGISTER.read_text())
    (tmp_path / "test_names.py").write_text(
        "import cluster, harness, workloads\n"
        "def test_own_packages_are_found():\n"
        "    assert [cluster.MINE, harness.MINE, workloads.MINE] == ['cluster', 'harness', 'workloads']\n"
    )
    return tmp_path


@pytest.mark.slow
def test_the_wheel_has_one_package_with_all_its_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"assay"}
    wanted = {"assay/__init__.py", "assay/py.typed"}
    for part in PARTS:
        for path in (ROOT / part).rglob("*"):
            if path.suffix == ".py" or path.name.endswith(DATA):
                wanted.add(f"assay/{path.relative_to(ROOT)}")
    assert {name for name in names if name.startswith("assay/")} == wanted


@pytest.mark.slow
@pytest.mark.long
def test_it_runs_next_to_folders_named_like_ours(python: Path, project: Path) -> None:
    where = run(python, "-c", "import assay; print(assay.__file__)", cwd=project)
    assert where.stdout.startswith(str(python.parents[1])), where.stdout + where.stderr
    options = ("--cluster=sim", "--nodes=1", "--rate=50", "--time-limit=1", "--nemesis=none")
    done = run(python, "-m", "pytest", "-q", *options, "-p", "no:cacheprovider", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert (project / "store" / "latest" / "report.html").is_file()
    checked = run(python.parent / "assay", "check", "store/latest", cwd=project)
    assert checked.stdout.startswith("PASS"), checked.stdout + checked.stderr


@pytest.fixture(scope="module")
def light_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the packages of requirements-light.txt, linked from this one."""
    folder = tmp_path_factory.mktemp("light")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    lines = (ROOT / "requirements-light.txt").read_text().splitlines()
    for one in [Requirement(line) for line in lines if not line.startswith("#")]:
        if one.marker is not None and not one.marker.evaluate():
            continue
        distribution = metadata.distribution(one.name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(distribution.locate_file(top)))
    install = run(sys.executable, "-m", "pip", "--python", python, *INSTALL, wheel, cwd=folder)
    assert install.returncode == 0, install.stdout + install.stderr
    return python


@pytest.mark.slow
def test_the_short_list_of_packages_is_enough_for_a_run_its_checks_and_its_report(
    light_python: Path, tmp_path: Path
) -> None:
    for name in ("pyspark", "numba", "scipy", "pandas"):
        assert run(light_python, "-c", f"import {name}", cwd=tmp_path).returncode == 1, name
    options = ("--cluster=sim", "--rate=50", "--time-limit=10", "--nemesis=partition", "--seed=1")
    done = run(
        light_python, "-m", "pytest", "-q", "--pyargs", "assay.workloads.test_log", *options, "-p", "no:cacheprovider",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "store" / "latest" / "report.html").is_file()
    for arguments in (("check", "store/latest"), ("index", "store"), ("check", "store/latest", "--engine=duckdb")):
        done = run(light_python.parent / "assay", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    spark = run(light_python.parent / "assay", "check", "store/latest", "--engine=spark", cwd=tmp_path)
    assert "pyspark" in spark.stderr
    assert "Traceback" not in spark.stderr
