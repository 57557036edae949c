"""Synthetic histories: right where nothing is planted, and wrong in exactly the one place where something is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from checkers.contract import Contract
from checkers.judge import judge
from checkers.log import LOG_ANOMALIES
from checkers.register import REGISTER_ANOMALIES
from checkers.verdict import Verdict
from harness.app.command import Exit, main
from harness.app.generate import PLANTABLE, PLANTED, generate
from harness.app.synthetic import segments, slots
from harness.app.synthetic.plan import Plan, PlanError, Planted
from harness.core.history import HistoryError, HistoryReader

pytestmark = pytest.mark.slow

EVERY = [(model, anomaly) for model, names in PLANTABLE.items() for anomaly in names]

SHAPES = (
    Plan(operations=2_000, clients=1, keys=1, info_share=0.0),
    Plan(operations=1_999, clients=7, keys=3, info_share=0.3),
    Plan(operations=3_001, clients=50, keys=4, info_share=0.05),
    Plan(operations=3_000, clients=3, keys=40, info_share=0.01),
)


def test_each_anomaly_can_be_planted() -> None:
    assert set(PLANTABLE["log"]) == set(LOG_ANOMALIES)
    assert set(PLANTABLE["register"]) == set(REGISTER_ANOMALIES)
    assert set(PLANTABLE["group"]) == {"zombie-commit", "double-ownership", "fencing-violation"}


@pytest.mark.parametrize(("model", "anomaly"), EVERY)
def test_the_planted_anomaly_is_found_where_it_is_and_nothing_else(tmp_path: Path, model: str, anomaly: str) -> None:
    for seed in range(2):  # and so other shapes, keys and places
        shape = SHAPES[(EVERY.index((model, anomaly)) + seed) % len(SHAPES)]
        plan = replace(shape, seed=seed, plant=anomaly)
        folder = tmp_path / str(seed)
        planted = generate(model, plan, folder).planted
        assert planted is not None
        assert msgspec.json.decode((folder / PLANTED).read_bytes(), type=Planted) == planted
        judged = judge(folder, Contract())
        assert (judged.verdict, judged.anomalies) == (Verdict.FAIL, {anomaly: 1})
        (finding,) = judged.findings
        assert finding.key == planted.key
        assert set(finding.operations) & set(planted.operations)
        numbers = [number for number in (planted.position, planted.value) if number is not None]
        assert any(str(number) in finding.claim for number in numbers)


@pytest.mark.parametrize("model", PLANTABLE)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.clients}-clients-{shape.keys}-keys")
def test_without_one_it_passes(tmp_path: Path, model: str, shape: Plan) -> None:
    made = generate(model, shape, tmp_path / "history")
    judged = judge(tmp_path / "history", Contract())
    assert (judged.verdict, judged.unknown, judged.anomalies) == (Verdict.PASS, (), {})
    assert made.planted is None
    assert not (tmp_path / "history" / PLANTED).exists()


@pytest.mark.parametrize("model", PLANTABLE)
def test_the_same_plan_makes_the_same_history(tmp_path: Path, model: str) -> None:
    plan = Plan(operations=5_000, clients=20, keys=5, plant=PLANTABLE[model][0])
    digests = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        generate(model, replace(plan, seed=seed), tmp_path / name)
        reader = HistoryReader(tmp_path / name)
        assert reader.closed is not None
        assert reader.closed.digest == reader.digest()
        digests.append(reader.digest())
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("model", PLANTABLE)
def test_stamps_differ_and_each_process_does_one_thing_at_a_time(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "CHUNK", 700)
    plan = Plan(operations=6_000, clients=13, keys=5, seed=1, info_share=0.1, plant=PLANTABLE[model][0])
    generate(model, plan, tmp_path / "history")
    ops = HistoryReader(tmp_path / "history").table("ops")
    call, ret = ops["call"].to_numpy(), ops["ret"].drop_null().to_numpy()
    stamps = np.concatenate([call, ret])
    assert len(np.unique(stamps)) == len(stamps)
    assert len(np.unique(ops["index"].to_numpy())) == len(ops)
    until: dict[int, float] = {}
    infos = 0
    for row in ops.sort_by("call").to_pylist():
        assert row["call"] > until.get(row["process"], -1)
        until[row["process"]] = float("inf") if row["ret"] is None else row["ret"]
        infos += row["outcome"] == "info"
    assert 0.05 < infos / len(ops) < 0.2


def test_chunks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers, logs and registers go on from one chunk to the next, also inside a scene."""
    monkeypatch.setattr(slots, "CHUNK", 100)
    for model in PLANTABLE:
        plan = Plan(operations=1_500, clients=10, keys=3, seed=5, plant=PLANTABLE[model][-1])
        generate(model, plan, tmp_path / model)
        assert judge(tmp_path / model, Contract()).anomalies == {PLANTABLE[model][-1]: 1}


def test_timeouts_come_in_clusters(tmp_path: Path) -> None:
    generate("register", Plan(operations=50_000, clients=10, keys=10, info_share=0.02), tmp_path / "history")
    outcome = HistoryReader(tmp_path / "history").table("ops")["outcome"].to_numpy()
    infos = (outcome == "info").astype(np.float64)
    whole, worst = infos.mean(), max(infos[at : at + 500].mean() for at in range(0, len(infos), 500))
    assert 0.005 < whole < 0.05
    assert worst > 0.4


def test_running_sums_minima_and_last_values_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(4)
    for length in (0, 1, 2, 50, 400):
        group = rng.integers(0, 7, length)
        values, flags = rng.integers(-100, 100, length), rng.random(length) < 0.3
        order, starts = segments.sorted_by(group)
        sums = segments.running_sum(values[order], starts)
        minima = segments.running_min(values[order], starts)
        last = segments.last_before(flags[order], starts)
        for place, row in enumerate(order):
            mine = [other for other in range(row + 1) if group[other] == group[row]]
            assert sums[place] == sum(values[other] for other in mine)
            assert minima[place] == min(values[other] for other in mine)
            before = [other for other in mine[:-1] if flags[other]]
            assert (order[last[place]] if last[place] >= 0 else None) == (before[-1] if before else None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["log", "--plant=stale-read"], "a log has no anomaly 'stale-read'; plant one of inconsistent-offset"),
        (["register", "--plant=lost-write"], "plant one of missing-writer"),
        (["log", "--operations=0"], "operations is 0; it takes 1"),
        (["log", "--operations=10", "--plant=lost-write"], "too few to plant"),
        (["register", "--info-share=2"], "info-share is 2.0"),
    ],
)
def test_wrong_plans_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["generate", *options, "--out", str(tmp_path / "history")]) == Exit.USAGE
    assert words in capsys.readouterr().err
    assert not (tmp_path / "history").exists()


def test_the_command_tells_what_it_planted_and_check_finds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "history")
    options = ["--operations=2000", "--clients=5", "--keys=3", "--seed=7", "--out", folder]
    assert main(["generate", "log", *options, "--plant=lost-write"]) == Exit.PASS
    told = capsys.readouterr().out
    assert "planted: lost-write in log-" in told
    assert main(["check", folder]) == Exit.FAIL
    assert "lost-write" in capsys.readouterr().out
    assert main(["generate", "log", *options]) == Exit.USAGE
    assert "is not empty" in capsys.readouterr().err


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(HistoryError, match="not empty"):
        generate("log", Plan(operations=1_000), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_nothing_is_written_for_an_anomaly_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="plant one of"):
        generate("register", Plan(operations=1_000, plant="nonsense"), tmp_path / "history")
    assert not (tmp_path / "history").exists()
