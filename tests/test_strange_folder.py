"""Commands that are started in a stranger's folder execute nothing that lies there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from assay.checkers.engine import EngineUnavailable, spark_application
from assay.cluster.docker.wheels import PIP

IMPORT_NUMBA = """
import sys
from assay.checkers.linearizability import compiled
numba = compiled._import_numba()
numba.core.config.reload_config()
print(numba.config.CACHE_DIR)
import yaml
assert yaml.safe_load("a: 1") == {"a": 1}
"""


@pytest.mark.parametrize("with_yaml", [False, True])
def test_numba_reads_no_configuration_of_the_current_folder(with_yaml: bool, tmp_path: Path) -> None:
    """Its ``cache_dir`` is a folder of pickles, which numba loads."""
    pytest.importorskip("numba")
    pytest.importorskip("yaml")
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: planted\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import yaml\n" * with_yaml + IMPORT_NUMBA],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_the_spark_that_is_launched_is_not_one_next_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "jars").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.chdir(tmp_path / "store")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    launched = []

    def launch(*_: object) -> None:
        launched.append(os.environ["SPARK_HOME"])
        raise OSError("this is enough")

    monkeypatch.setattr(spark_application, "launch_gateway", launch)
    with pytest.raises(EngineUnavailable, match="this is enough"):
        spark_application.SparkApplication(quick=True)
    assert (Path(launched[0]) / "bin" / "spark-submit").is_file()
    assert tmp_path not in Path(launched[0]).parents
    assert "SPARK_HOME" not in os.environ


def test_pip_is_the_one_that_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('executed')\n")
    subprocess.run([*PIP, "--version"], cwd=tmp_path, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("words", [("index", "."), ("defects",), ("nights", "show", ".")], ids=lambda words: words[0])
def test_a_command_whose_options_name_no_module_imports_none_of_the_current_folder(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    with zipfile.ZipFile(Path(__file__).parent / "fixtures" / "runs" / "format_7-group-pass.zip") as archive:
        archive.extractall(tmp_path / "store")
    for name in ("kazoo", "lz4", "compression", "yaml", "termios", "cramjam"):
        (tmp_path / "store" / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    script = "from assay.harness.cli.main import main; main()"
    subprocess.run([sys.executable, "-P", "-c", script, *words], cwd=tmp_path / "store", timeout=60, check=False)
    assert not (tmp_path / "executed").exists()
