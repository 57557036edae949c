"""``assay init``: which service it takes, the test that it writes, and its errors."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from assay.cluster.compose import project, system
from assay.cluster.compose.project import Project, parse_project
from assay.cluster.containers import Container
from assay.harness.cli import init
from assay.harness.cli.command import ExitCode
from assay.harness.cli.init import group_by_role
from assay.harness.cli.known_images import KNOWN, KnownImage, find_data_folder, find_known
from assay.harness.cli.main import main
from assay.harness.core.operation import Operation, Outcome
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.settings import Settings

ETCD = {"image": "quay.io/coreos/etcd:v3.7.0", "command": "etcd --data-dir /data/here", "volumes": ["d:/data"]}
OTHER = {"image": "shop:1"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, in which Compose files are read without the command of Compose."""

    def read_plainly(file: Path, profiles: Sequence[str] = ()) -> Project:
        return parse_project(file, yaml.safe_load(file.read_text()), profiles)

    monkeypatch.setattr(project, "read_project", read_plainly)
    monkeypatch.setattr(system, "read_project", read_plainly)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_file(**services: Any) -> Path:
    path = Path("docker-compose.yml")
    path.write_text(yaml.safe_dump({"services": services}))
    return path


def import_test(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("etcd", "etcd"),
        ("etcd:3.7", "etcd"),
        ("registry:5000/some/etcd:v3@sha256:" + "0" * 64, "etcd"),
        ("bitnami/valkey:8", "redis"),
        ("postgres:17-alpine", "postgresql"),
        ("etcd-operator:1", None),
        ("myetcd", None),
        ("", None),
    ],
)
def test_an_image_is_known_by_the_last_part_of_its_name(image: str, name: str | None) -> None:
    found = find_known(image)
    assert (found.name if found else None) == name


def test_no_image_is_known_twice() -> None:
    names = [known.name for known in KNOWN]
    assert [find_known(name) for name in names] == list(KNOWN)


def test_the_command_names_the_folder_of_the_data_before_a_variable_and_the_volumes() -> None:
    etcd = find_known("etcd")
    assert etcd is not None
    volumes, variable = {"/var/lib/etcd": "d"}, {"ETCD_DATA_DIR": "/b"}
    whole = Container(command=["etcd", "--data-dir=/a"], environment=variable, volumes=volumes)
    assert find_data_folder(etcd, whole) == ("/a", True)
    assert find_data_folder(etcd, Container(entrypoint=["etcd", "--data-dir", "/a"])) == ("/a", True)
    assert find_data_folder(etcd, Container(environment=variable, volumes=volumes)) == ("/b", True)
    assert find_data_folder(etcd, Container(volumes=volumes)) == ("/var/lib/etcd", False)
    assert find_data_folder(etcd, Container()) is None


def test_numbered_services_are_one_role_and_a_lone_one_keeps_its_name() -> None:
    names = ["etcd1", "etcd-2", "etcd_3", "db7", "app", "app1"]
    found = parse_project(Path("f"), {"services": {name: OTHER for name in names}})
    groups = {role: [service.name for service in services] for role, services in group_by_role(found).items()}
    assert groups == {"etcd": ["etcd1", "etcd-2", "etcd_3"], "db7": ["db7"], "app": ["app"], "app1": ["app1"]}


def test_the_test_of_numbered_services_is_one_of_their_role(capsys: pytest.CaptureFixture[str]) -> None:
    file = write_file(app=OTHER, etcd1=ETCD, etcd2=ETCD, etcd3=ETCD)
    assert main(["init", str(file)]) == ExitCode.PASS
    command = "pytest test_etcd.py --cluster=docker --nemesis=kill --nemesis-target=one:etcd"
    assert capsys.readouterr().out == f"wrote test_etcd.py\nnext:\n  {command}\n"
    written = import_test(Path("test_etcd.py"))
    assert command in written.__doc__
    assert written.SYSTEM.client_roles == ["etcd"]
    assert written.SYSTEM.port("etcd") == 2379
    node: Any = type("Node", (), {"name": "etcd1", "role": "etcd", "index": 1})()
    assert written.SYSTEM._file.read_text() == file.read_text()
    assert written.SYSTEM._data == {"etcd": "/data/here"}
    assert written.SYSTEM.data_files(node) == ["/data/here/member/wal/0*.wal"]
    assert written.CONTRACT.may_stall == ("outage", "outage-power-loss")


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
@pytest.mark.parametrize("count", [1, 3])
def test_the_test_of_each_known_image_compiles_and_linters_find_nothing(
    known: KnownImage, count: int, here: Path
) -> None:
    file = write_file(**{f"store{number}": {"image": known.name} | known.service for number in range(count)})
    role = "store" if count > 1 else "store0"
    assert main(["init", str(file)]) == ExitCode.PASS
    written = Path(f"test_{role}.py")
    module = import_test(written)
    assert callable(getattr(module, f"test_{role}"))
    assert_clean(here / written)


def get_experiment(function: object) -> Experiment:
    found = find_experiment(function)
    assert found is not None
    return found


def assert_clean(path: Path) -> None:
    for command in (["check", "--select=E,F,I,B,UP,SIM,RUF,D300,ANN"], ["format", "--diff"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_test_of_one_node_names_the_faults_that_stall_it() -> None:
    write_file(etcd=ETCD)
    assert main(["init"]) == ExitCode.PASS
    assert {"kill", "stop", "power-loss"} <= {*import_test(Path("test_etcd.py")).CONTRACT.may_stall}


def test_the_account_and_the_risk_of_the_file_are_in_the_test(capsys: pytest.CaptureFixture[str]) -> None:
    account = {"POSTGRES_USER": "shop", "POSTGRES_PASSWORD": 'pass"word'}
    write_file(db={"image": "postgres:17", "environment": account}, cache={"image": "redis", "command": "--dir /d"})
    assert main(["init", "--service=db"]) == ExitCode.PASS
    client = import_test(Path("test_db.py")).Client
    assert (client.user, client.password, client.database) == ("shop", 'pass"word', "shop")
    capsys.readouterr()
    assert main(["init", "--service=cache"]) == ExitCode.PASS
    assert "cache runs redis: without `--appendonly yes` it loses acknowledged elements" in capsys.readouterr().out
    text = Path("test_cache.py").read_text()
    assert "# As docker-compose.yml is, without `--appendonly yes` it loses" in text
    assert "class Client" not in text
    assert import_test(Path("test_cache.py")).SYSTEM._data == {"cache": "/d"}
    write_file(cache={"image": "redis", "command": "redis-server --appendonly yes --requirepass=secret"})
    assert main(["init", "--output=test_safe.py"]) == ExitCode.PASS
    assert "loses" not in capsys.readouterr().out + Path("test_safe.py").read_text()
    assert import_test(Path("test_safe.py")).Client.password == "secret"


def test_a_missing_driver_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init.util, "find_spec", lambda name: None)
    write_file(db={"image": "postgres:17"})
    assert main(["init"]) == ExitCode.PASS
    assert "the client needs a driver: pip install 'assay[postgresql]'" in capsys.readouterr().out
    extras = {known.extra for known in KNOWN if known.driver}
    project_file = Path(__file__).parents[3] / "pyproject.toml"
    assert extras <= {*tomllib.loads(project_file.read_text())["project"]["optional-dependencies"]}


def test_the_test_of_an_unknown_image_fails_until_two_functions_are_filled_in(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    write_file(app={"image": "shop:1"})
    assert main(["init", "--port=8000"]) == ExitCode.PASS
    assert "fill in get() and put() in test_app.py first" in capsys.readouterr().out
    assert_clean(here / "test_app.py")
    written = import_test(Path("test_app.py"))
    assert written.SYSTEM.port("app") == 8000
    with pytest.raises(pytest.fail.Exception, match=r"fill in get\(\) and put\(\) in test_app.py"):
        get_experiment(written.test_app).generator(Settings(seed=1))
    Path("test_app.py").write_text(re.sub("    pytest.fail.*\n", "", Path("test_app.py").read_text()))
    ready = import_test(Path("test_app.py"))
    values = {"r0": 3}
    ready.get, ready.put = lambda address, key: values.get(key), lambda address, key, value: values.update({key: value})
    client = ready.Client()
    client.open(SimpleNamespace(address="h:1"), None)
    assert client.invoke(Operation("write", "r1", 4)).outcome is Outcome.OK
    assert [client.invoke(Operation("read", key)).result for key in ("r0", "r1", "r2")] == [3, 4, None]
    assert get_experiment(ready.test_app).generator(Settings(seed=1)) is not None


def test_a_file_that_exists_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    file = write_file(etcd=ETCD)
    Path("test_etcd.py").write_text("mine")
    assert main(["init", str(file)]) == ExitCode.USAGE
    assert "test_etcd.py exists and is left as it is; name another file with --output=FILE" in capsys.readouterr().err
    assert Path("test_etcd.py").read_text() == "mine"
    Path("tests").mkdir()
    assert main(["init", str(file), "--output=tests/test_mine.py", "--port=2380"]) == ExitCode.PASS
    written = import_test(Path("tests/test_mine.py"))
    assert written.SYSTEM._file.read_text() == file.read_text()
    assert written.SYSTEM.port("etcd") == 2380


@pytest.mark.parametrize(
    ("services", "options", "message"),
    [
        ({"a": ETCD, "b": ETCD}, [], "several services that could be tested: a (etcd), b (etcd); name the one"),
        ({"a": OTHER, "b": OTHER}, [], "no image that is known here; name the service that your clients use"),
        ({"a": ETCD}, ["--service=c"], "has no service c; name one of a with --service=NAME"),
        ({"a": ETCD}, ["--image=etcd"], "give either a Compose file or --image"),
    ],
)
def test_an_unclear_choice_is_an_error_that_names_the_services(
    services: dict[str, Any], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(write_file(**services)), *options]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert list(Path().glob("*.py")) == []


def test_a_service_may_be_named_also_one_of_several_with_a_number() -> None:
    write_file(a=ETCD, b1=ETCD, b2=ETCD)
    for name in ("a", "b", "b2"):
        assert main(["init", f"--service={name}"]) == ExitCode.PASS
        assert import_test(Path(f"test_{name}.py")).SYSTEM.client_roles == [name]


def test_without_a_file_the_one_of_the_folder_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == ExitCode.USAGE
    assert "this folder has no compose.yaml" in capsys.readouterr().err


def test_an_image_gets_a_compose_file_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--image=quay.io/coreos/etcd:v3.7.0"]) == ExitCode.PASS
    content = yaml.safe_load(Path("compose-etcd.yml").read_text())
    assert content["services"]["etcd"]["image"] == "quay.io/coreos/etcd:v3.7.0"
    assert import_test(Path("test_etcd.py")).SYSTEM._file.name == "compose-etcd.yml"
    capsys.readouterr()
    assert main(["init", "--image=etcd"]) == ExitCode.USAGE
    assert "test_etcd.py exists" in capsys.readouterr().err
    assert main(["init", "--image=etcd", "--output=test_more.py"]) == ExitCode.USAGE
    assert "compose-etcd.yml exists" in capsys.readouterr().err
    assert main(["init", "--image=:7"]) == ExitCode.USAGE
    assert "is not the name of an image" in capsys.readouterr().err
