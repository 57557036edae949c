"""Synthetic histories: right where nothing is planted, and wrong in exactly the one place where something is."""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.checkers.administration.lost_changes import LOST_CHANGES
from assay.checkers.administration.rejected_changes import REJECTED_CHANGES
from assay.checkers.families import FAMILIES
from assay.checkers.groups.commits import COMMITS
from assay.checkers.groups.expiry import EXPIRY
from assay.checkers.groups.family import GROUP_CONVERGENCE
from assay.checkers.groups.read_after_release import READS_AFTER_RELEASE
from assay.checkers.groups.rebalance_churn import REBALANCE_CHURN
from assay.checkers.groups.split_views import SPLIT_VIEWS
from assay.checkers.groups.starts import STARTS
from assay.checkers.judging.contract import Contract
from assay.checkers.judging.verdict import Verdict
from assay.checkers.liveness.client_progress import PROGRESS
from assay.checkers.liveness.family import LIVENESS
from assay.checkers.log.epochs import REPLICATION
from assay.checkers.log.family import LOG, REPORTED, STATEMENTS
from assay.checkers.log.replicas import REPLICA_ANOMALIES
from assay.checkers.log.unflushed import UNFLUSHED_LOSS
from assay.checkers.objects.max_registers import MAX_REGISTER_ANOMALIES
from assay.checkers.objects.monotonic import MONOTONIC_REAL_TIME
from assay.checkers.objects.queues import LINEARIZABLE_QUEUES
from assay.checkers.objects.sets import LINEARIZABLE_SETS
from assay.checkers.register.family import REGISTER_ANOMALIES
from assay.checkers.servers.acknowledged_state import INSPECTION
from assay.checkers.servers.invariants import INVARIANTS
from assay.checkers.servers.leadership import OWNERSHIP_ANOMALIES
from assay.checkers.servers.process_exits import PROCESSES
from assay.checkers.transactions.cycles import REAL_TIME
from assay.checkers.transactions.family import TRANSACTION_ANOMALIES, TRANSACTION_FAMILIES
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.history import HistoryError, HistoryReader, HistoryWriter, writer
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.core.transactions import derive_effects as effects_of_transaction
from assay.harness.stored.by_contract import open_stored
from assay.harness.synthetic import history, log
from assay.harness.synthetic.catalogue import CATALOGUE
from assay.harness.synthetic.generate import HISTORY, MODELS, PLANTED, UNFINISHED, generate
from assay.harness.synthetic.history import HistoryMaker
from assay.harness.synthetic.plan import OPERATIONS_PER_ANOMALY, GenerationResult, Plan, PlanError, Planted, Record
from assay.harness.synthetic.tiles import Bases, Layout, Tile, relative

from helpers.judging import judge
from helpers.nightly import some_by_day
from helpers.plain_objects import PLAIN

pytestmark = pytest.mark.slow

DAY = ("log", "register", "queue", "txn")
"""Models by day; the nightly run tries each."""
FEW = ("log", "txn")
"""Model for tests of features that all models share."""
EVERY = [(model, anomaly) for model, entry in CATALOGUE.items() for anomaly in entry.anomalies]


@st.composite
def plans(draw: st.DrawFn, plant: tuple[str, ...] = ()) -> Plan:
    least = max(1, OPERATIONS_PER_ANOMALY * len(plant))
    operations = draw(st.integers(least, least + 1000))
    return Plan(
        operations=operations,
        clients=draw(st.integers(4 if plant else 1, 60)),
        keys=draw(st.integers(max(1, len(plant)), len(plant) + 20)),
        seed=draw(st.integers(0, 2**32)),
        info_share=draw(st.sampled_from((0.0, 0.01, 0.1, 0.3, 0.9))),
        bursts=draw(st.sampled_from((None, 0, 1, min(4, operations)))),
        plant=plant,
    )


Recorded = tuple[str, str | None, Any]
"""Anomaly, key, and the finding, or the value."""


def found(model: str, folder: Path) -> list[Recorded]:
    """Returns the findings, of the tests' own checks if the project's checks need the kind of object."""
    if model in PLAIN:
        return [*PLAIN[model](HistoryReader(folder / HISTORY).table("effects").to_pylist())]
    judged = judge(folder / HISTORY, Contract())
    assert sum(judged.anomalies.values()) == len(judged.findings)
    return [(finding.anomaly, finding.key, finding) for finding in judged.findings]


@contextmanager
def made(model: str, plan: Plan) -> Iterator[tuple[Path, GenerationResult]]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "made"
        yield folder, generate(model, plan, folder)


def said_right(planted: Planted, instance: Recorded) -> None:
    """The finding is where the plan says it is."""
    anomaly, key, finding = instance
    assert (anomaly, key) == (planted.anomaly, planted.key)
    if isinstance(finding, int):
        assert finding == planted.value
        return
    # Findings from event logs have no operations.
    assert set(finding.operations) & set(planted.operations) or not finding.operations
    assert within(planted, finding)
    numbers = [number for number in (planted.position, planted.value) if number is not None]
    assert not numbers or any(str(number) in finding.claim for number in numbers)


ECHOES = {
    "position-jump": {"nonmonotonic-poll", "poll-skip"},
    "end-too-low": {"high-watermark-regression"},
    "altered-record": {"phantom"},
}
"""Planted anomaly -> further findings in the same key, because the same rows contradict each other twice."""


def found_as_said(recorded: Sequence[Planted], instances: list[Recorded]) -> None:
    """Each planted anomaly is one instance, and there is no other but for its echo."""
    planted_at = {(planted.anomaly, planted.key) for planted in recorded}
    instances = [one for one in instances if not planted_at & {(cause, one[1]) for cause in ECHOES.get(one[0], ())}]
    assert Counter(anomaly for anomaly, _, _ in instances) == Counter(planted.anomaly for planted in recorded)
    for planted in recorded:
        # Anomalies without an object are told apart by their times.
        mine = [one for one in instances if one[:2] == (planted.anomaly, planted.key)]
        (instance,) = mine if planted.key is not None else [one for one in mine if within(planted, one[2])]
        said_right(planted, instance)


def within(planted: Planted, finding: Any) -> bool:
    return finding.time is None or bool(planted.time <= finding.time <= planted.until)


UNPLANTED = (
    *COMMITS,
    *REPLICATION,
    LINEARIZABLE_QUEUES,
    LINEARIZABLE_SETS,
    EXPIRY,
    INSPECTION,
    INVARIANTS,
    LOST_CHANGES,
    MONOTONIC_REAL_TIME,
    READS_AFTER_RELEASE,
    PROCESSES,
    PROGRESS,
    REJECTED_CHANGES,
    REPORTED,
    LIVENESS,
    REBALANCE_CHURN,
    GROUP_CONVERGENCE,
    SPLIT_VIEWS,
    STARTS,
    STATEMENTS,
)
"""Checks that need more than generated histories have."""


def test_each_anomaly_can_be_planted() -> None:
    assert list(CATALOGUE) == list(MODELS)
    assert set(CATALOGUE["log"].anomalies) == {*LOG.anomalies, *OWNERSHIP_ANOMALIES, *REPLICA_ANOMALIES}
    assert set(CATALOGUE["register"].anomalies) == set(REGISTER_ANOMALIES)
    assert set(CATALOGUE["txn"].anomalies) == set(TRANSACTION_ANOMALIES)
    assert set(CATALOGUE["max-register"].anomalies) == set(MAX_REGISTER_ANOMALIES)
    known = {anomaly for family in FAMILIES for anomaly in family.anomalies}
    ordered = {anomaly for family in TRANSACTION_FAMILIES for anomaly in family.anomalies} - {*TRANSACTION_ANOMALIES}
    # Anomalies that only a contract declares, and anomalies that are not planted.
    assert known - {anomaly for entry in CATALOGUE.values() for anomaly in entry.anomalies} == {
        UNFLUSHED_LOSS, *ordered, *(anomaly for family in UNPLANTED for anomaly in family.anomalies),
    }  # fmt: skip


def nothing_is_found(model: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(plans())
    @example(Plan(operations=1_500, clients=20, keys=5, seed=1, info_share=0.3, bursts=2))
    def nothing(plan: Plan) -> None:
        with made(model, plan) as (folder, recorded):
            assert found(model, folder) == []
            assert recorded.planted == ()

    nothing()


@pytest.mark.parametrize("model", some_by_day(CATALOGUE, DAY))
def test_without_one_nothing_is_found(model: str) -> None:
    nothing_is_found(model, 4 if model in PLAIN else 1)


@pytest.mark.long
@pytest.mark.parametrize("model", CATALOGUE)
def test_without_one_nothing_is_found_with_many_seeds(model: str) -> None:
    nothing_is_found(model, 50)


@pytest.mark.parametrize("model", some_by_day(CATALOGUE, FEW))
def test_without_one_it_passes(model: str) -> None:
    with made(model, Plan(operations=4_000, clients=20, keys=5, info_share=0.05, bursts=3)) as (folder, _):
        contract = Contract(transaction_order=REAL_TIME)
        judged = judge(folder / HISTORY, contract, requires_exposure=False)
        assert (judged.verdict, judged.unknown, judged.anomalies) == (Verdict.PASS, (), {})


def test_an_offset_does_not_go_back_to_one_that_may_have_been_committed_late() -> None:
    """It would be no proof: a commit of unknown outcome asks for the offset that is below the planted one."""
    plan = Plan(
        operations=1728, clients=4, keys=9, seed=25000, info_share=0.1,
        plant=("missing-writer", "offset-regression", "missing-writer"),
    )  # fmt: skip
    with made("offsets", plan) as (folder, recorded):
        found_as_said(recorded.planted, found("offsets", folder))


def only_what_was_planted(model: str, examples: int) -> None:
    """Some anomalies of the model in one history, one of them perhaps more than once."""
    plants = st.lists(st.sampled_from(CATALOGUE[model].anomalies), min_size=1, max_size=3).map(tuple)

    @settings(max_examples=examples)
    @given(plants.flatmap(plans))
    def only_these(plan: Plan) -> None:
        with made(model, plan) as (folder, recorded):
            found_as_said(recorded.planted, found(model, folder))

    only_these()


@pytest.mark.parametrize("model", some_by_day(CATALOGUE, DAY))
def test_what_was_planted_is_found_where_it_is_and_nothing_else(model: str) -> None:
    only_what_was_planted(model, 4 if model in PLAIN else 1)


@pytest.mark.long
@pytest.mark.parametrize("model", CATALOGUE)
def test_what_was_planted_is_found_where_it_is_and_nothing_else_with_many_seeds(model: str) -> None:
    only_what_was_planted(model, 150)


@pytest.mark.parametrize("model", some_by_day(CATALOGUE, DAY))
def test_all_anomalies_in_one_history_are_found_each_in_its_place(model: str) -> None:
    names = CATALOGUE[model].anomalies
    plant = (*names, names[0])
    plan = Plan(operations=OPERATIONS_PER_ANOMALY * len(plant), clients=8, keys=len(plant), seed=5, plant=plant)
    with made(model, plan) as (folder, recorded):
        found_as_said(recorded.planted, found(model, folder))


@pytest.mark.parametrize("model", some_by_day(CATALOGUE, FEW))
def test_the_same_plan_makes_the_same_history(tmp_path: Path, model: str) -> None:
    plan = Plan(operations=2_000, clients=20, keys=5, plant=CATALOGUE[model].anomalies[:1])
    digests = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        recorded = generate(model, replace(plan, seed=seed), tmp_path / name)
        reader = HistoryReader(tmp_path / name / HISTORY)
        assert reader.closing_note is not None
        assert reader.closing_note.digest == reader.digest()
        digests.append(reader.digest())
        record = msgspec.json.decode((tmp_path / name / PLANTED).read_bytes(), type=Record)
        assert (record.model, record.seed, record.planted) == (model, seed, recorded.planted)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("model", some_by_day(CATALOGUE, FEW))
def test_stamps_differ_and_each_process_does_one_thing_at_a_time(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "TILE", 700)
    plant = CATALOGUE[model].anomalies[:2]
    plan = Plan(operations=6_000, clients=13, keys=5, seed=1, info_share=0.1, plant=plant)
    generate(model, plan, tmp_path)
    ops = HistoryReader(tmp_path / HISTORY).table("ops")
    call, ret = ops["call"].to_numpy(), ops["ret"].drop_null().to_numpy()
    stamps = np.concatenate([call, ret])
    assert len(np.unique(stamps)) == len(stamps)
    assert len(np.unique(ops["index"].to_numpy())) == len(ops)
    until: dict[int, float] = {}
    infos = most = 0
    open_ones: list[float] = []
    for row in ops.sort_by("call").to_pylist():
        assert row["call"] > until.get(row["process"], -1)
        until[row["process"]] = float("inf") if row["ret"] is None else row["ret"]
        infos += row["outcome"] == "info"
        if row["ret"] is not None:
            open_ones = [end for end in open_ones if end > row["call"]] + [row["ret"]]
            most = max(most, len(open_ones))
        for text in (row["argument"], row["result"]):
            assert text is None or msgspec.json.decode(text) is not NotImplemented
    assert 0.05 < infos / len(ops) < 0.2
    assert most > plan.clients // 2


@pytest.mark.parametrize("model", some_by_day(CATALOGUE, FEW))
def test_chunks_do_not_show(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers, logs and registers go on from one chunk to the next, also inside a scene; and so does the end."""
    monkeypatch.setattr(history, "TILE", 100)
    monkeypatch.setattr(log, "PER_POLL", 50)
    plant = CATALOGUE[model].anomalies[-1:]
    with made(model, Plan(operations=1_500, clients=10, keys=3, seed=5, plant=plant)) as (folder, recorded):
        (instance,) = found(model, folder)
        said_right(recorded.planted[0], instance)


@pytest.mark.long
@pytest.mark.parametrize("model", ["log", "set", "queue", "group", "txn"])
def test_memory_does_not_grow_with_the_history(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """With one key, whose log is as long as the history: neither what is written at once grows, nor what is held."""
    monkeypatch.setattr(history, "TILE", 2_000)
    largest: list[int] = []
    batch = HistoryWriter.batch

    def measured(writer: HistoryWriter, name: str, rows: pa.RecordBatch) -> None:
        largest.append(rows.num_rows)
        batch(writer, name, rows)

    monkeypatch.setattr(HistoryWriter, "batch", measured)
    peaks, rows = [], []
    # Garbage of other tests would delay the collection of cycles, and would be counted.
    gc.collect()
    gc.freeze()
    try:
        for operations in (5_000, 50_000):
            largest.clear()
            tracemalloc.start()
            with made(model, Plan(operations=operations, clients=10, keys=1)):
                peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            rows.append(max(largest))
    finally:
        gc.unfreeze()
    assert rows[1] < 1.5 * rows[0]
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize(("bursts", "share"), [(1, 0.02), (4, 0.1), (7, 0.5)])
def test_timeouts_come_in_as_many_bursts_and_hit_all_clients(bursts: int, share: float) -> None:
    plan = Plan(operations=50_000, clients=20, keys=10, info_share=share, bursts=bursts)
    with made("register", plan) as (folder, _):
        ops = HistoryReader(folder / HISTORY).table("ops")
    at = np.flatnonzero(ops["outcome"].to_numpy() == "info")
    assert share / 1.2 < len(at) / len(ops) < share * 1.2
    windows = np.split(at, np.flatnonzero(np.diff(at) > 100) + 1)
    assert len(windows) <= bursts  # two may adjoin
    worker = ops["worker"].to_numpy()
    for window in windows:
        assert len(set(worker[window])) == plan.clients
        assert len(window) > 0.7 * (window[-1] - window[0])


def test_without_bursts_timeouts_are_anywhere() -> None:
    with made("register", Plan(operations=50_000, keys=10, info_share=0.02, bursts=0)) as (folder, _):
        infos = HistoryReader(folder / HISTORY).table("ops")["outcome"].to_numpy() == "info"
    each = [infos[at : at + 5_000].mean() for at in range(0, len(infos), 5_000)]
    assert 0.01 < min(each) <= max(each) < 0.03


def test_registers_have_chains_and_failed_cas_that_tell_and_that_do_not() -> None:
    with made("register", Plan(operations=3_000, clients=5, keys=40)) as (folder, _):
        effects = HistoryReader(folder / HISTORY).table("effects").to_pylist()
        ops = {row["index"]: row for row in HistoryReader(folder / HISTORY).table("ops").to_pylist()}
    swaps = [row for row in effects if row["kind"] == "register-cas" and row["outcome"] == "ok"]
    assert any(row["expected"] is None for row in swaps)
    by_cas = {(row["key"], row["value"]) for row in swaps}
    links = [(row["key"], row["expected"]) in by_cas for row in swaps]
    assert 0 < sum(links) < len(links)
    failed = {row["op"] for row in effects if row["kind"] == "register-cas" and row["error"] == "mismatch"}
    telling = {row["op"] for row in effects if row["kind"] == "register-read" and row["sub"] == 1}
    assert telling < failed
    for row in effects:
        op = ops[row["op"]]
        if row["sub"] == 0:
            recorded = {
                "register-read": None,
                "register-write": row["value"],
                "register-cas": [row["expected"], row["value"]],
            }[row["kind"]]
            assert msgspec.json.decode(op["argument"]) == recorded
        if row["kind"] == "register-read" and row["outcome"] == "ok":
            assert msgspec.json.decode(op["result"]) == row["value"]


def test_leases_refuse_what_is_stale_and_accept_what_is_not() -> None:
    with made("lease", Plan(operations=4_000, clients=9, keys=4, info_share=0.05)) as (folder, _):
        effects = HistoryReader(folder / HISTORY).table("effects").to_pylist()
    recorded = Counter((row["kind"], row["outcome"], row["error"]) for row in effects)
    assert (
        min(recorded["guarded", "ok", None], recorded["guarded", "fail", "stale-epoch"], recorded["renew", "ok", None])
        > 20
    )
    given = {(row["process"], row["key"], row["token"]) for row in effects if row["kind"] == "acquire"}
    used = {(row["process"], row["key"], row["token"]) for row in effects if row["kind"] != "acquire"}
    assert used <= given  # no one uses a token that its own process was not given
    assert len({key for _, key, _ in used}) == 4


def test_leases_that_were_lost_are_not_used_again() -> None:
    with made("lease", Plan(operations=4_000, clients=9, keys=4, info_share=0.05)) as (folder, _):
        effects = HistoryReader(folder / HISTORY).table("effects").to_pylist()
    gone = set()
    for row in effects:
        hold = row["process"], row["key"], row["token"]
        if row["kind"] == "lost":
            # In the operation that was refused under it.
            assert (row["outcome"], row["sub"], row["token"] is None) == ("ok", 1, False)
            gone.add(hold)
        elif row["kind"] != "acquire":
            assert hold not in gone
    assert len(gone) > 50


@pytest.mark.parametrize(("clients", "keys"), [(9, 20), (3, 40), (20, 1)])
def test_members_of_a_group_share_its_partitions(clients: int, keys: int) -> None:
    """Each has what it was reported, and works on that alone; together they have all, each partition once."""
    plan = Plan(operations=6_000, clients=clients, keys=keys, info_share=0.05, bursts=4, seed=3)
    with made("group", plan) as (folder, _):
        reader = HistoryReader(folder / HISTORY)
        effects = sorted(reader.table("effects").to_pylist(), key=lambda row: (row["op"], row["sub"]))
        stored = reader.table("events").to_pylist()
    held: dict[tuple[int, str], dict[str, int]] = {}
    owners: dict[tuple[str, int], dict[str, str]] = {}
    kinds: Counter[str] = Counter()
    for row in effects:
        mine = held.setdefault((row["process"], row["group"]), {})
        if row["kind"] == "acquire":
            assert row["key"] not in mine
            mine[row["key"]] = row["generation"]
            assert len(set(mine.values())) == 1  # what it had before it has reported off
            owners.setdefault((row["group"], row["generation"]), {}).setdefault(row["key"], row["owner"])
            assert owners[row["group"], row["generation"]][row["key"]] == row["owner"] or row["key"] == row["group"]
        elif row["kind"] in ("lost", "release"):
            assert mine.pop(row["key"]) == row["generation"]
        elif row["kind"].startswith("observe") and row["phase"] == "main":
            assert mine[row["key"]] == row["assignment"]
        elif row["kind"] == "commit":
            group, _, key = row["key"].partition("/")
            assert (group, mine[key]) == (row["group"], row["generation"])
        elif row["kind"] == "idle":
            assert list(mine) == [row["group"]]
        kinds[row["kind"]] += 1
    # The case that all seats were reported.
    assert max(len([key for key in shares if key.startswith("orders-")]) for shares in owners.values()) == min(keys, 8)
    assert all(kinds[kind] > 5 for kind in ("acquire", "lost", "release", "observe", "commit"))
    assert (kinds["idle"] > 50) == (keys == 1)
    generations = [(row["key"], row["epoch"]) for row in stored]
    assert len(set(generations)) == len(generations)
    assert set(owners) <= set(generations)


@pytest.mark.parametrize("model", ["txn", "txn-register"])
def test_transactions_say_in_their_effects_what_they_did(model: str) -> None:
    plan = Plan(operations=3_000, clients=9, keys=4, info_share=0.1, seed=2, plant=CATALOGUE[model].anomalies[:2])
    with made(model, plan) as (folder, _):
        reader = HistoryReader(folder / HISTORY)
        recorded: dict[int, list[Any]] = {}
        for row in sorted(reader.table("effects").to_pylist(), key=lambda row: (row["op"], row["sub"])):
            recorded.setdefault(row["op"], []).append(
                (row["kind"], row["key"], row["position"], row["value"], row["sub"])
            )
        ops = reader.table("ops").to_pylist()
    for row in ops:
        argument, result = (msgspec.json.decode(row[name] or "null") for name in ("argument", "result"))
        assert (result is None) == (row["outcome"] != "ok")
        assert result is None or [[f, key, None if f == "r" else x] for f, key, x in result] == argument
        completion = Completion(Outcome(row["outcome"]), result)
        completed = Completed(row["index"], 0, "", Operation(row["f"], None, argument), completion, row["call"], None)
        expected = [
            (effect.kind, effect.key, effect.position, effect.value, sub)
            for sub, effect in enumerate(effects_of_transaction(completed))
        ]
        assert recorded.get(row["index"], []) == expected
    assert len({key for rows in recorded.values() for _, key, _, _, _ in rows}) >= 4


def test_queues_hand_out_elements_in_order_and_all_of_them_in_the_end() -> None:
    with made("queue", Plan(operations=3_000, clients=6, keys=3, info_share=0.0)) as (folder, _):
        effects = HistoryReader(folder / HISTORY).table("effects").to_pylist()
    for key in {row["key"] for row in effects}:
        # Each operation took effect in the order of its index.
        mine = sorted((row for row in effects if row["key"] == key), key=lambda row: row["op"])
        put = [row["value"] for row in mine if row["kind"] == "queue-enqueue"]
        assert put == [row["value"] for row in mine if row["kind"] == "queue-dequeue" and row["outcome"] == "ok"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["log", "--plant=stale-read"], "a log history has no anomaly 'stale-read'; plant one of inconsistent-offset"),
        (["register", "--plant=stale-read", "--plant=lost-write"], "plant one of missing-writer"),
        (["log", "--operations=0"], "operations is 0; it takes 1"),
        (["log", "--operations=10", "--plant=lost-write"], "10 operations are too few to plant lost-write; take 500"),
        (["log", "--operations=999", "--plant=duplicate", "--plant=phantom"], "take 1000 or more"),
        (["register", "--clients=1", "--plant=lost-update"], "lost-update takes 2 clients at once, and there are 1"),
        (["register", "--keys=1", "--plant=stale-read", "--plant=future-read"], "2 of them need 2 keys, not 1"),
        (["register", "--info-share=2"], "info-share is 2.0"),
        (["register", "--operations=50", "--bursts=51"], "bursts is 51"),
        (["register", "--operations=900000000", "--bursts=900000000"], "bursts is 900000000; it takes 0 to 100000"),
    ],
)
def test_wrong_plans_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["generate", *options, "--out", str(tmp_path / "history")]) == ExitCode.USAGE
    assert words in capsys.readouterr().err
    assert not (tmp_path / "history").exists()


def test_the_command_tells_what_it_planted_and_check_finds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "made")
    options = ["--operations=2000", "--clients=5", "--keys=3", "--seed=7", "--out", folder]
    assert main(["generate", "log", *options, "--plant=lost-write", "--plant=poll-skip"]) == ExitCode.PASS
    recorded = capsys.readouterr().out
    assert "planted: lost-write in log-" in recorded
    assert "planted: poll-skip in log-" in recorded
    assert main(["check", folder]) == ExitCode.FAIL
    assert "lost-write" in capsys.readouterr().out
    assert main(["generate", "log", *options]) == ExitCode.USAGE
    assert "is not an empty folder" in capsys.readouterr().err


def test_the_help_tells_every_model_and_anomaly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["generate", "--help"])
    recorded = capsys.readouterr().out
    assert left.value.code == 0
    for model, anomaly in EVERY:
        assert model in recorded
        assert anomaly in recorded


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(HistoryError, match="not an empty folder"):
        generate("log", Plan(operations=1_000), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_progress_is_reported(tmp_path: Path) -> None:
    reported: list[int] = []
    generate("log", Plan(operations=25_000), tmp_path / "made", reported.append)
    assert reported == sorted(reported)
    assert (len(reported) > 2, reported[-1]) == (True, 25_000)


@pytest.mark.parametrize("there", [False, True])
def test_an_interrupted_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    """Ctrl-C after the last row: all is written by then, but nothing has a name yet."""
    folder = tmp_path / "made"
    if there:
        folder.mkdir()
    write = HistoryMaker.write

    def interrupted(maker: HistoryMaker, writer: HistoryWriter, progress: object) -> tuple[Planted, ...]:
        write(maker, writer)
        assert (folder / UNFINISHED / "ops").is_dir()
        with pytest.raises(FileNotFoundError):  # so nor would one that was killed here
            open_stored(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(HistoryMaker, "write", interrupted)
    assert main(["generate", "log", "--operations=1000", "--out", str(folder)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert folder.exists() == there
    assert not there or not list(folder.iterdir())


@pytest.mark.parametrize("name", ["notes", PLANTED])
def test_a_file_that_someone_puts_there_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mine, write = tmp_path / "made" / name, HistoryMaker.write

    def meet(maker: HistoryMaker, writer: HistoryWriter, progress: object) -> tuple[Planted, ...]:
        planted = write(maker, writer)
        mine.write_text("mine")
        if name != PLANTED:
            raise KeyboardInterrupt
        return planted

    monkeypatch.setattr(HistoryMaker, "write", meet)
    with pytest.raises((KeyboardInterrupt, FileExistsError)):
        generate("log", Plan(operations=1_000), tmp_path / "made")
    assert [path.name for path in mine.parent.iterdir()] == [name]
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("good", [0, 3, 7])
def test_a_disk_that_is_full_is_reported_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: int
) -> None:
    """At the first batch, one in between, and the last, which the making does not wait for."""
    monkeypatch.setattr(history, "TILE", 500)
    batch, written = HistoryWriter.batch, 0

    def full(writer: HistoryWriter, name: str, rows: pa.RecordBatch) -> None:
        nonlocal written
        if written == good:
            raise OSError("no space left on device")
        written += 1
        batch(writer, name, rows)

    monkeypatch.setattr(HistoryWriter, "batch", full)
    with pytest.raises(OSError, match="no space left"):
        generate("counter", Plan(operations=2_000), tmp_path / "made")
    assert written == good
    assert not (tmp_path / "made").exists()


def test_a_disk_that_is_full_from_the_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(writer, "LiveManifestWriter", full)
    with pytest.raises(OSError, match="no space left"):
        generate("counter", Plan(operations=2_000), tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_nothing_is_written_for_an_anomaly_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="plant one of"):
        generate("register", Plan(operations=1_000, plant=("nonsense",)), tmp_path / "history")
    assert not (tmp_path / "history").exists()


def test_a_counter_that_a_tile_sets_continues_from_the_value_in_its_copy() -> None:
    """Each copy is of other keys, so the tile's number means another key and value in each."""
    counters, layout = Bases(Plan(operations=9, clients=2, keys=3), 1, (7,), 3, 1), Layout(clients=2, keys=3)
    tile = Tile(
        slots=1,
        operations=1,
        batches=(),
        counters_afterwards={layout.object_counter(0): relative(layout.object_counter(0), 5)},
    )
    expected = [7, 7, 7]
    for _ in range(6):
        copy = counters.get_values()
        expected[int(copy[layout.key_counter(0)])] += 5
        counters.move(tile, copy)
        assert counters.counts.tolist() == [expected]
    assert min(expected) > 7
