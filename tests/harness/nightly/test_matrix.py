"""``nightly.toml``: lists multiply, and what is wrong is named with its place and what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.harness.nightly.matrix import KEYS, read_plan
from assay.harness.nightly.night_record import CellKind, MatrixCell, NightError
from assay.system_under_test.defects import DEFECTS

ROOT = Path(__file__).parents[3]
SYSTEMS = '[systems]\nbroker = "assay.system_under_test.deployment:Broker"\n'
RUN = '[[run]]\nworkloads = ["workloads/test_log.py"]\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("test_log", "test_group"):
        (tmp_path / "workloads").mkdir(exist_ok=True)
        (tmp_path / "workloads" / f"{name}.py").touch()
    (tmp_path / "schedules").mkdir()
    for name in ("a", "b"):
        (tmp_path / "schedules" / f"{name}.json").touch()
    return tmp_path


def written(place: Path, text: str, systems: str = SYSTEMS) -> Path:
    path = place / "nightly.toml"
    path.write_text(systems + text)
    return path


def read_cells(path: Path) -> tuple[MatrixCell, ...]:
    return read_plan(path)[0]


def wrong(place: Path, text: str, systems: str = SYSTEMS) -> str:
    path = written(place, text, systems)
    with pytest.raises(NightError) as raised:
        read_cells(path)
    assert str(path) in str(raised.value)
    return str(raised.value)


def test_lists_multiply(place: Path) -> None:
    cells = read_cells(written(place, '[[run]]\nworkloads = ["workloads"]\nnemeses = ["none", "kill,partition"]\n'
        'clusters = ["sim", "docker"]\noptions = ["--rate=9"]\nrepeat = 3\ntimeout = "2min"\n'))  # fmt: skip
    assert len(cells) == 8
    last = next(cell for cell in cells if cell.name == "run/test_log/kill+partition/docker")
    assert last.arguments == (
        "workloads/test_log.py", "--nemesis=kill,partition", "--cluster=docker", "--rate=9",
    )  # fmt: skip
    assert (last.kind, last.workload, last.nemesis, last.cluster) == (
        CellKind.RUN,
        "test_log",
        "kill+partition",
        "docker",
    )
    assert (last.system, last.defect, last.repeat, last.timeout) == ("broker", None, 3, 120.0)


def test_a_search_has_its_budget_before_it_can_hang(place: Path) -> None:
    (cell,) = read_cells(written(place, '[[explore]]\nworkloads = ["workloads/test_log.py"]\nbudget = "5min"\n'))
    assert cell.name == "explore/test_log/any/sim"
    assert cell.arguments == ("workloads/test_log.py", "--explore=5min", "--cluster=sim")
    assert cell.timeout == 900.0


def test_a_canary_has_the_run_that_the_system_describes(place: Path) -> None:
    cells = read_cells(written(place, '[[canary]]\ndefects = ["ack-before-replication", "silent-consumer"]\n'
        'clusters = ["sim", "docker"]\n'))  # fmt: skip
    assert [cell.name for cell in cells] == [
        "canary/ack-before-replication/sim", "canary/ack-before-replication/docker", "canary/silent-consumer/sim",
    ]  # fmt: skip
    assert cells[1].arguments == (
        "workloads/test_log.py", "--nemesis=kill", "--nemesis-target=leader", "--time-limit=60", "--cluster=docker",
        "--defect=ack-before-replication",
    )  # fmt: skip
    assert (cells[0].expected, cells[0].nemesis, cells[0].defect) == (
        ("lost-write",), "kill", "ack-before-replication",
    )  # fmt: skip


def test_a_canary_can_have_a_run_of_its_own(place: Path) -> None:
    (cell,) = read_cells(written(place, '[[canary]]\ndefects = ["isr-of-one"]\nworkloads = ["workloads/test_log.py"]\n'
        'nemeses = ["kill"]\n'))  # fmt: skip
    assert cell.name == "canary/isr-of-one/test_log/kill/sim"
    assert cell.arguments == ("workloads/test_log.py", "--nemesis=kill", "--cluster=sim", "--defect=isr-of-one")
    assert cell.expected == DEFECTS["isr-of-one"].anomalies


def test_stored_schedules_are_played(place: Path) -> None:
    cells = read_cells(
        written(place, '[[schedule]]\nworkloads = ["workloads/test_log.py"]\nschedules = ["schedules/*"]\n')
    )
    assert [cell.name for cell in cells] == ["schedule/test_log/a/sim", "schedule/test_log/b/sim"]
    assert cells[0].arguments == ("workloads/test_log.py", "--replay=schedules/a.json", "--cluster=sim")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RUN + 'nemesis = ["kill"]', "[[run]] number 1: there is no key 'nemesis'; did you mean 'nemeses'? There are:"),
        (RUN + RUN + 'budget = "1min"', "[[run]] number 2: there is no key 'budget'"),
        (
            "[[runs]]",
            "there is no key 'runs'; did you mean 'run'? There are: systems, shrink, run, explore, canary, schedule",
        ),
        (RUN.replace("[[run]]", "[run]"), "`$.run`"),
        (RUN + "nemeses = 1", "`$.run[0].nemeses`"),
        (
            RUN + 'label = "a\\nb"',
            "[[run]] number 1: a cell would be named 'run/a\\nb/test_log/none/sim', with a character",
        ),
        (
            RUN + 'nemeses = ["kill\\u0000"]',
            "named 'run/test_log/kill\\x00/sim', with a character that is not printable",
        ),
        (RUN + "repeat = 0", "`$.run[0].repeat`"),
        (RUN + "repeat = 100001", "<= 100000 - at `$.run[0].repeat`"),
        (RUN + "repeat = 9223372036854775807", "<= 100000 - at `$.run[0].repeat`"),
        (RUN + "repeat = 99999999999999999999999", "<= 100000 - at `$.run[0].repeat`"),
        (
            f"[[run]]\nworkloads = {['workloads'] * 1000}\nnemeses = {['kill'] * 1000}\nclusters = {['sim'] * 1000}",
            "[[run]] number 1: a night has at most 50,000 cells: shorten the lists of this block",
        ),
        (RUN + 'timeout = "1e9h"', "timeout='1e9h' is not a time"),
        ('[[explore]]\nworkloads = ["workloads"]\nbudget = "1000000001"', "budget=1000000001 must be between"),
        (RUN + 'clusters = ["docer"]', "clusters='docer' is not one of docker, sim, ssh, attach"),
        (RUN + 'timeout = "10"', "timeout='10' has no unit: write 10s"),
        (RUN + 'timeout = "soon"', "timeout='soon' is not a time: write 30s, 5min or 8h"),
        (RUN + 'options = ["--seed=1"]', "options: --seed=1 is not allowed here"),
        (RUN + 'options = ["-n2"]', "options: -n2 is not allowed here"),
        ('[[canary]]\noptions = ["--defect=isr-of-one"]', "options: --defect=isr-of-one is not allowed here"),
        (RUN + 'system = "brokr"', "system='brokr' is not one of broker"),
        ('[[run]]\nworkloads = ["workloads/test_lug.py"]', "did you mean 'workloads/test_log.py'?"),
        ("[[run]]\n", "workloads is missing"),
        ('[[explore]]\nworkloads = ["workloads"]', "budget is missing"),
        ('[[canary]]\ndefects = ["isr-of-two"]', "defects: broker has no 'isr-of-two'; did you mean 'isr-of-one'?"),
        ('[[canary]]\nnemeses = ["kill"]', "nemeses goes with workloads"),
        ('[[schedule]]\nworkloads = ["workloads"]\nschedules = ["x*.json"]', "schedules: no file in "),
        (RUN + RUN, "two cells are named run/test_log/none/sim"),
        ("", "has no cells"),
        ("[[run", "nightly.toml"),
        (f"x = {'[' * 5000}{']' * 5000}", "nightly.toml: its values are nested too deep"),
        (f"x = {'{a=' * 3000}1{'}' * 3000}", "nightly.toml: its values are nested too deep"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(place: Path, text: str, said: str) -> None:
    assert said in wrong(place, text)


def test_a_matrix_may_be_large(place: Path) -> None:
    nemeses = [f"kill,{number}" for number in range(2_000)]
    text = f'[[run]]\nworkloads = ["workloads"]\nnemeses = {nemeses}\nclusters = ["sim", "docker"]\nrepeat = 100000\n'
    assert len(read_cells(written(place, text))) == 8_000


def test_systems_are_named_and_found(place: Path) -> None:
    assert "`systems`" in wrong(place, RUN, systems="")
    assert "system='' is not one of a, b" in wrong(place, RUN, systems='[systems]\na = "x:A"\nb = "x:B"\n')
    assert "no module nowhere" in wrong(place, "[[canary]]\n", systems='[systems]\na = "nowhere:A"\n')
    with pytest.raises(NightError, match=r"there is no .*--matrix"):
        read_cells(place / "other.toml")


def test_a_label_tells_two_blocks_apart(place: Path) -> None:
    cells = read_cells(written(place, RUN + RUN + 'label = "slow"'))
    assert [cell.name for cell in cells] == ["run/test_log/none/sim", "run/slow/test_log/none/sim"]


@given(kind=st.sampled_from(CellKind), key=st.from_regex(r"[a-z]{1,12}", fullmatch=True))
def test_no_key_is_ignored(kind: CellKind, key: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assume(key not in KEYS[kind])
    assert f"[[{kind}]] number 1: there is no key '{key}'" in wrong(
        tmp_path_factory.getbasetemp(), f"[[{kind}]]\n{key} = 1\n"
    )


def test_the_matrix_of_this_project_has_every_defect_and_other_names_for_other_cells() -> None:
    cells = read_cells(ROOT / "nightly.toml")
    assert {cell.defect for cell in cells} - {None} == set(DEFECTS)
    assert {cell.kind for cell in cells} == set(CellKind)
