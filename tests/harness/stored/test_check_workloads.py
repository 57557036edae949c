"""``assay check`` on histories of Jepsen's workloads: what each verdict is, and what is rejected."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.verdict import Judgement
from assay.checkers.linearizability import MODELS
from assay.checkers.workload_checks.catalog import CHECKS
from assay.checkers.workload_checks.transaction_models import TRANSACTION_MODELS
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.core.operation import Completed, Completion, Operation, Outcome
from assay.harness.foreign import WORKLOADS as SHAPES
from assay.harness.stored import request
from assay.harness.stored.by_workload import EFFECT_MAKERS
from assay.harness.stored.effects_of_workload import make_unique_id_effects
from assay.harness.stored.workload_table import TABLE

from helpers.workload_files import Event, balances, done, edn, transfer


def checked(
    path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], *options: str
) -> tuple[str, dict[str, int], str]:
    """Verdict, anomalies, and the first two notes on what was examined."""
    path.write_text(edn(events))
    main(["check", str(path), *options, "--json"])
    judgement = msgspec.json.decode(capsys.readouterr().out, type=Judgement)
    notes = "; ".join(one.note or "" for one in judgement.examined[:2])
    return judgement.verdict.value, dict(judgement.anomalies), notes


def rejected(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["check", *arguments]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_options_offer_what_there_is() -> None:
    assert tuple(SHAPES) == request.WORKLOADS
    assert {one.effects for one in TABLE} - {None} == set(EFFECT_MAKERS)
    assert {one.check for one in TABLE} - {None} == set(CHECKS)
    models = {one.model for one in TABLE} | {one.linearizable_model for one in TABLE}
    assert models - {None} <= {*MODELS, *TRANSACTION_MODELS}
    for one in TABLE:
        assert sum(judge is not None for judge in (one.effects, one.check, one.model)) == 1


def bank(*last: Event, first: list[Event] | None = None) -> list[Event]:
    """Two accounts with 10 each; four reads and five transfers of 1, so that 6 and 14 are there in the end."""
    events = [(9, "info", "start-partition", "nil")]
    events = done(0, "read", "nil", balances((10, 10))) if first is None else first
    for number in range(1, 5):
        events += done(1, "transfer", transfer(0, 1, 1))
        events += done(0, "read", "nil", balances((10 - number, 10 + number)))
    return [*events, *last]


RIGHT_BANKS: dict[str, list[Event]] = {
    "all is there": [],
    "a transfer of which no one knows, seen": [
        *done(1, "transfer", transfer(0, 1, 2), type="info"), *done(0, "read", "nil", balances((4, 16))),
    ],
    "and not seen": [
        *done(1, "transfer", transfer(0, 1, 2), type="info"), *done(0, "read", "nil", balances((6, 14))),
    ],
    "one that failed, not seen": [
        *done(1, "transfer", transfer(0, 1, 7), "[:negative 0]", "fail"), *done(0, "read", "nil", balances((6, 14))),
    ],
    "an account that is empty and not shown": [
        *done(1, "transfer", transfer(0, 1, 6)), *done(0, "read", "nil", "{1 20}"),
    ],
    "a vector of balances": done(0, "read", "nil", "[6 14]"),
    "a wrong read that failed": done(0, "read", "nil", balances((6, 10)), "fail"),
}  # fmt: skip
WRONG_BANKS: dict[str, tuple[list[Event], dict[str, int]]] = {
    "half of a transfer": (
        [(1, "invoke", "transfer", transfer(0, 1, 2)), *done(0, "read", "nil", balances((4, 14)))], {"bank-total": 1},
    ),
    "less than nothing": (
        [(1, "invoke", "transfer", transfer(0, 1, 7)), *done(0, "read", "nil", balances((-1, 21)))],
        {"bank-negative": 1},
    ),
    "an account without a balance": (done(0, "read", "nil", "{0 nil, 1 20}"), {"bank-total": 1, "bank-unaccounted": 1}),
    "no account": (done(0, "read", "nil", "{}"), {"bank-total": 1, "bank-unaccounted": 2}),
    "accounts without balances": (done(0, "read", "nil", "{0 nil, 1 nil}"), {"bank-total": 1}),
}  # fmt: skip


@pytest.mark.parametrize("last", RIGHT_BANKS.values(), ids=RIGHT_BANKS)
def test_a_right_bank_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str], last: list[Event]) -> None:
    verdict, anomalies, notes = checked(tmp_path / "h.edn", capsys, bank(*last), "--workload=bank")
    assert (verdict, anomalies) == ("pass", {})
    assert "bank is taken to hold 20, as " in notes


@pytest.mark.parametrize(("last", "anomalies"), WRONG_BANKS.values(), ids=WRONG_BANKS)
def test_a_wrong_bank_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: list[Event], anomalies: dict[str, int]
) -> None:
    found = checked(tmp_path / "h.edn", capsys, bank(*last), "--workload=bank", "--total=20")
    assert found[:2] == ("fail", anomalies)
    assert "is taken to hold" not in found[2]


OTHER_MOMENTS: dict[str, list[Event]] = {
    "a transfer that failed": [
        *done(1, "transfer", transfer(0, 1, 2), type="fail"), *done(0, "read", "nil", balances((4, 16))),
    ],
    "an earlier snapshot": [
        *done(1, "transfer", transfer(0, 1, 2)), *done(0, "read", "nil", balances((6, 14))),
    ],
    "a transfer that the file lacks": done(0, "read", "nil", balances((3, 17))),
}  # fmt: skip


@pytest.mark.parametrize("last", OTHER_MOMENTS.values(), ids=OTHER_MOMENTS)
def test_a_balance_of_another_moment_fails_only_if_linearizability_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: list[Event]
) -> None:
    found = checked(tmp_path / "h.edn", capsys, bank(*last), "--workload=bank")
    assert found[:2] == ("pass", {"bank-unaccounted": 2})
    found = checked(tmp_path / "h.edn", capsys, bank(*last), "--workload=bank", "--linearizable")
    assert found[:2] == ("fail", {"bank-unaccounted": 2})


def test_where_nothing_was_read_before_a_transfer_only_totals_and_signs_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = done(1, "transfer", transfer(0, 1, 1))
    unseen = bank(*done(0, "read", "nil", balances((0, 20))), first=late)
    assert checked(tmp_path / "h.edn", capsys, unseen, "--workload=bank")[:2] == ("pass", {})
    assert checked(tmp_path / "h.edn", capsys, unseen, "--workload=bank", "--total=20")[0] == "pass"
    verdict, anomalies, _ = checked(tmp_path / "h.edn", capsys, unseen, "--workload=bank", "--total=21")
    assert (verdict, anomalies) == ("fail", {"bank-total": 5})


@pytest.mark.parametrize("shown", ["{}", "[]", "{0 nil, 1 nil}"])
def test_a_bank_whose_reads_show_no_balance_fails_if_its_total_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: str
) -> None:
    events = [*done(1, "transfer", transfer(0, 1, 1)), *done(0, "read", "nil", shown)]
    assert checked(tmp_path / "h.edn", capsys, events, "--workload=bank", "--total=20")[:2] == (
        "fail",
        {"bank-total": 1},
    )


@pytest.mark.parametrize("options", [(), ("--total=0",)])
def test_a_bank_without_accounts_is_not_judged_if_no_money_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    events = done(0, "read", "nil", "{}")
    assert checked(tmp_path / "h.edn", capsys, events, "--workload=bank", *options)[:2] == ("unknown", {})


def test_the_total_of_a_bank_is_that_of_reads_that_show_all_balances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = done(0, "read", "nil", "{0 nil, 1 nil}")
    events = [*lost, *done(0, "read", "nil", balances((10, 10))), *lost]
    verdict, anomalies, notes = checked(tmp_path / "h.edn", capsys, events, "--workload=bank")
    assert (verdict, anomalies) == ("fail", {"bank-total": 2})
    assert "bank is taken to hold 20, as 1 of 3 reads show" in notes


@pytest.mark.parametrize(
    ("events", "both"),
    [
        ([*done(0, "read", "nil", "{1 10}"), *done(0, "read", "nil", '{"1" 10}')], '1 and "1"'),
        ([*done(0, "read", "nil", "{1 10}"), *done(1, "transfer", '{:from "1", :to 2, :amount 1}')], '1 and "1"'),
        ([*done(1, "transfer", '{:from "1", :to 1, :amount 1}')], '"1" and 1'),
        ([*done(1, "transfer", '{:from "a", :to :a, :amount 1}')], '"a" and :a'),
    ],
)
def test_accounts_of_one_name_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], both: str
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(events))
    assert f"the accounts {both} would have one name" in rejected(capsys, str(path), "--workload=bank")


@pytest.mark.parametrize("shown", ['{"1" 10, "2" 10}', "{:1 10, :2 10}", "{1 10, 2 10}"])
def test_keys_of_a_json_object_name_the_accounts_of_transfers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: str
) -> None:
    events = [*done(0, "read", "nil", shown), *done(1, "transfer", transfer(1, 2, 0)), *done(0, "read", "nil", shown)]
    assert checked(tmp_path / "h.edn", capsys, events, "--workload=bank")[:2] == ("pass", {})


def test_counters_of_one_name_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn([*done(0, "read", "nil", "{1 3}"), *done(0, "read", "nil", '{"1" 2}')]))
    assert 'the counters 1 and "1" would have one name, 1' in rejected(capsys, str(path), "--workload=monotonic")
    path.write_text(edn([*done(0, "read", "nil", "{1 3}"), *done(0, "read", "nil", "{1 3}")]))
    assert main(["check", str(path), "--workload=monotonic"]) == ExitCode.PASS


def test_what_had_to_be_found_out_is_said_under_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(bank()))
    assert main(["check", str(path), "--workload=bank"]) == ExitCode.PASS
    assert "bank is taken to hold 20, as 5 of 5 reads show" in capsys.readouterr().out.splitlines()
    assert main(["check", str(path), "--workload=bank", "--total=20"]) == ExitCode.PASS
    assert "is taken" not in capsys.readouterr().out


def test_a_balance_that_no_column_holds_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(bank(*done(0, "read", "nil", f"{{0 {2**64 + 1}, 1 3}}"))))
    assert main(["check", str(path), "--workload=bank"]) == ExitCode.USAGE
    assert f"the balance of account 0 is {2**64 + 1}, which has more than 64 bits" in capsys.readouterr().err


def test_banks_under_keys_are_judged_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        (process, type, f, f"[{key} {value}]")
        for key in (1, 2)
        for process, type, f, value in bank(*(done(0, "read", "nil", balances((1, 1))) if key == 2 else ()))
    ]
    verdict, anomalies, notes = checked(tmp_path / "h.edn", capsys, events, "--workload=bank")
    assert (verdict, anomalies) == ("fail", {"bank-total": 1, "bank-unaccounted": 2})
    assert "1 is taken to hold 20, as 5 of 5 reads show; 2 is taken to hold 20, as 5 of 6 reads show" in notes


def test_what_is_no_bank_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    for events, words in (
        (done(0, "write", "1"), ":write is no operation of bank, which has read, transfer"),
        (done(0, "transfer", "{:from 0, :to 1}"), ":transfer takes a map with :from, :to and an :amount"),
        (done(0, "transfer", "{:from 0, :to 1, :amount 1.5}"), ":transfer takes a map with :from, :to and an :amount"),
        (done(0, "read", "nil", "17"), "the result of :read is a map of account to balance, or a vector"),
        (done(0, "read", "nil", '{0 "much"}'), "the result of :read is a map of account to balance"),
        (done(0, "read", "nil", "nil"), "the result of :read is a map of account to balance"),
        (done(0, "read", "nil", '{1 10, "1" 20}'), "two keys of one map would have one name, 1"),
    ):
        path.write_text(edn(events))
        assert words in rejected(capsys, str(path), "--workload=bank")


def grows(*last: Event) -> list[Event]:
    """As in the workload of TiDB: increments of one key, reads of all."""
    events = []
    for number in range(1, 7):
        events += done(0, "inc", "0", f"{{0 {number}}}") + done(1, "inc", "1", f"{{1 {number}}}")
        events += done(2, "read", "{0 nil, 1 nil}", f"{{0 {number}, 1 {number}}}")
    return [*events, *last]


GROWTH: dict[str, tuple[list[Event], list[str], tuple[str, dict[str, int]]]] = {
    "it grows": ([], ["--real-time"], ("pass", {})),
    "a process sees less than before": (done(2, "read", "{}", "{0 5}"), [], ("fail", {"nonmonotonic-read": 1})),
    "it is gone": (done(2, "read", "{}", "{0 nil}"), [], ("fail", {"nonmonotonic-read": 1})),
    "another process does": (done(3, "read", "{}", "{0 5}"), [], ("pass", {})),
    "and must not": (done(3, "read", "{}", "{0 5}"), ["--real-time"], ("fail", {"monotonic-cycle-real-time": 1})),
    "two reads disagree": (
        [*done(3, "read", "{}", "{0 7, 1 8}"), *done(4, "read", "{}", "{0 8, 1 7}")], [],
        ("fail", {"monotonic-cycle": 1}),
    ),
    "it did not arrive": (done(2, "read", "{}", "{0 5}", "info"), ["--real-time"], ("pass", {})),
}  # fmt: skip


@pytest.mark.parametrize(("last", "options", "ends"), GROWTH.values(), ids=GROWTH)
def test_counters_that_only_grow_are_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    last: list[Event],
    options: list[str],
    ends: tuple[str, dict[str, int]],
) -> None:
    assert checked(tmp_path / "h.edn", capsys, grows(*last), "--workload=monotonic", *options)[:2] == ends


def test_a_counter_of_its_own_under_each_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        (process, type, f, f'["{key}" {"nil" if type == "invoke" else number}]')
        for number in range(10)
        for key in "ab"
        for process, type, f, _ in done(0, "read", "nil")
    ]
    assert checked(tmp_path / "h.edn", capsys, events, "--workload=monotonic")[:2] == ("pass", {})
    events += [(0, "invoke", "read", '["a" nil]'), (0, "ok", "read", '["a" 3]')]
    found = checked(tmp_path / "h.edn", capsys, events, "--workload=monotonic")
    assert found[:2] == ("fail", {"nonmonotonic-read": 1})


def forks(*last: Event, f: str = "txn") -> list[Event]:
    """Writes of one key each, in groups of two, and reads of both; without ``f`` as newer versions call them."""
    events = []
    for number in range(6):
        events += done(number % 2, f or "write", f"[[:w {number} 1]]")
        group = number - number % 2
        called = f"[[:r {group} nil] [:r {group + 1} nil]]"
        there = "1" if number % 2 else "nil"
        events += done(2, f or "read", called, f"[[:r {group} 1] [:r {group + 1} {there}]]")
    return [*events, *last]


def both(x: str, y: str, process: int = 2) -> list[Event]:
    return done(process, "txn", "[[:r 6 nil] [:r 7 nil]]", f"[[:r 6 {x}] [:r 7 {y}]]")


OPEN = [(8, "invoke", "txn", "[[:w 6 1]]"), (9, "invoke", "txn", "[[:w 7 1]]")]
TRANSACTIONS: dict[str, tuple[list[Event], str, list[str], tuple[str, dict[str, int]]]] = {
    "groups that are read in one order": (forks(), "long-fork", [], ("pass", {})),
    "as newer versions write it": (forks(f=""), "long-fork", [], ("pass", {})),
    "a long fork": (
        forks(*OPEN, *both("1", "nil"), *both("nil", "1", 3)), "long-fork", [], ("fail", {"G-nonadjacent": 1}),
    ),
    "one saw both": (forks(*OPEN, *both("1", "nil"), *both("1", "1", 3)), "long-fork", [], ("pass", {})),
    "an old state": (forks(*both("nil", "nil"), *done(3, "txn", "[[:r 0 nil]]")), "long-fork", [], ("pass", {})),
    "that must not be shown": (
        forks(*done(3, "txn", "[[:r 0 nil] [:r 1 nil]]")), "rw-register", ["--real-time"],
        ("fail", {"G-single-real-time": 1}),
    ),
    "lists": (
        [event for number in range(12) for event in done(0, "txn", f"[[:append 1 {number}]]")]
        + done(1, "txn", "[[:r 1 nil]]", f"[[:r 1 [{' '.join(map(str, range(12)))}]]]"),
        "list-append", ["--real-time"], ("pass", {}),
    ),
    "lists in two orders": (
        [event for number in range(12) for event in done(0, "txn", f"[[:append 1 {number}]]")]
        + done(1, "txn", "[[:r 1 nil]]", "[[:r 1 [0 1 2]]]") + done(1, "txn", "[[:r 1 nil]]", "[[:r 1 [0 2]]]"),
        "list-append", [], ("fail", {"incompatible-order": 1}),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("events", "workload", "options", "ends"), TRANSACTIONS.values(), ids=TRANSACTIONS)
def test_transactions_are_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    events: list[Event],
    workload: str,
    options: list[str],
    ends: tuple[str, dict[str, int]],
) -> None:
    assert checked(tmp_path / "h.edn", capsys, events, f"--workload={workload}", *options)[:2] == ends


def test_what_is_no_transaction_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    for value, words in (
        ("nil", ":txn takes a vector of [:w key value] and [:r key nil]"),
        ("[[:w 1 nil]]", "line 1, column 1: :txn takes a vector of [:w key value]"),
        ("[[:r 1]]", ":txn takes a vector of [:w key value]"),
        ("[[:append 1]]", ":txn takes a vector of [:w key value]"),
        ('[[:w 1 2] [:w "1" 3]]', 'operation 0: the keys 1 and "1" would have one name, 1'),
        ('[[:w :x 2] [:w "x" 3]]', 'operation 0: the keys :x and "x" would have one name, x'),
    ):
        path.write_text(edn(done(0, "txn", value)))
        assert words in rejected(capsys, str(path), "--workload=long-fork")


def ids(*given: str) -> list[Event]:
    return [event for number, one in enumerate(given) for event in done(number % 3, "generate", "nil", one)]


@pytest.mark.parametrize(
    ("events", "ends"),
    [
        (ids(*map(str, range(20))), ("pass", {})),
        (ids(*map(str, range(20)), "7"), ("fail", {"id-duplicate": 1})),
        ([*ids(*map(str, range(20))), *done(0, "generate", "nil", "7", "info")], ("pass", {})),
        (ids(*(f'"n1-{number}"' for number in range(20)), '"7"', "7"), ("pass", {})),
        (ids(*(f'"n1-{number}"' for number in range(20)), '"n1-3"'), ("fail", {"id-duplicate": 1})),
        (ids(*(f"{2**70 + number}" for number in range(20))), ("pass", {})),
        (ids(*(f"{{:node 1, :id {number % 19}}}" for number in range(20))), ("fail", {"id-duplicate": 1})),
        (ids(*(f'"n1-{number}"' for number in range(20)), "1.5", '"1.5"', ":a", '"a"', "[1]", '"[1]"'), ("pass", {})),
        (ids(*(f'"n1-{number}"' for number in range(20)), '"1.5"', '"1.5"'), ("fail", {"id-duplicate": 1})),
        (ids(*map(str, range(5))), ("pass", {})),
    ],
    ids=[
        "all differ",
        "one twice",
        "one did not arrive",
        "text",
        "text twice",
        "large",
        "maps",
        "written alike",
        "written alike, twice",
        "few",
    ],
)
def test_ids_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], ends: tuple[str, dict[str, int]]
) -> None:
    assert checked(tmp_path / "h.edn", capsys, events, "--workload=unique-ids")[:2] == ends


def test_an_id_of_brackets_is_its_own_name() -> None:
    """Its JSON would be nested too deep to be read."""
    got = "[" * 100_000
    generated = Completed(0, 0, "0", Operation("generate"), Completion(Outcome.OK, got), 1, 2)
    ((_, (effect,)),) = make_unique_id_effects([generated]).rows
    assert effect.name == got


def test_an_answer_without_an_id_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.edn").write_text(edn(ids("1", "nil")))
    assert "the result of :generate is the new id, not `nil`" in rejected(
        capsys, str(tmp_path / "h.edn"), "--workload=unique-ids"
    )


def test_options_that_do_not_go_together_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(done(0, "read", "nil", "[1]")))
    assert "name one with --workload=" in rejected(capsys, str(path))
    path.write_text(edn(bank()))
    for options, words in (
        (["--workload=bank", "--model=register"], "and so does --model: choose one"),
        (
            ["--workload=bank", "--cas-refusals"],
            "--cas-refusals goes with --workload=register, cas-register, lin-kv, and",
        ),
        (["--workload=bank", "--real-time"], "--real-time goes with --workload=list-append, append, "),
        (["--model=register", "--total=3"], "--total goes with --workload=bank"),
    ):
        assert words in rejected(capsys, str(path), *options)
    (tmp_path / "sub").mkdir()
    assert "neither a run nor a history folder" in rejected(capsys, str(tmp_path / "sub"), "--workload=bank")


def test_micro_operations_are_shown_in_the_notation_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(done(0, "txn", "[[:r :x nil] [:append :y 1]]", "[[:r :x [7]] [:append :y 1]]")))
    assert main(["check", str(path), "--workload=list-append"]) == ExitCode.FAIL
    line = capsys.readouterr().out.splitlines()[1]
    assert "txn [[:r :x nil] [:append :y 1]] by process 0" in line
    assert line.endswith("ok [[:r :x [7]] [:append :y 1]]")


SKEWED_WRITES = [
    *done(9, "txn", "[[:w :x 1] [:w :y 1]]"),
    (1, "invoke", "txn", "[[:r :x nil] [:w :y 2]]"),
    (2, "invoke", "txn", "[[:r :y nil] [:w :x 2]]"),
    (1, "ok", "txn", "[[:r :x 1] [:w :y 2]]"),
    (2, "ok", "txn", "[[:r :y 1] [:w :x 2]]"),
]
STALE_READ = [
    *done(0, "txn", "[[:w :x 1]]"),
    *done(1, "txn", "[[:w :x 2]]"),
    *done(2, "txn", "[[:r :x nil]]", "[[:r :x 1]]"),
]
SKEWED_APPENDS = [
    (1, "invoke", "txn", "[[:r :x nil] [:append :y 2]]"),
    (2, "invoke", "txn", "[[:r :y nil] [:append :x 2]]"),
    (1, "ok", "txn", "[[:r :x []] [:append :y 2]]"),
    (2, "ok", "txn", "[[:r :y []] [:append :x 2]]"),
    *done(3, "txn", "[[:r :x nil] [:r :y nil]]", "[[:r :x [2]] [:r :y [2]]]"),
]


READ_BEHIND_OWN_WRITE = [*done(0, "txn", "[[:w :x 1] [:w :x 2]]"), *done(1, "txn", "[[:w :x 3] [:r :x 1]]")]
"""The second transaction reads an intermediate value of the first, after it has itself written to the register."""


def padded(events: list[Event]) -> list[Event]:
    """Adds reads of other keys, because a contract asks for ten operations."""
    return [*events, *(event for key in range(10) for event in done(90, "txn", f"[[:r {900 + key} nil]]"))]


@pytest.mark.parametrize(
    ("events", "options", "anomaly"),
    [
        (SKEWED_WRITES, ["--workload=rw-register"], "G2-item"),
        (SKEWED_WRITES, ["--workload=rw-register", "--level=snapshot-isolation"], None),
        (SKEWED_WRITES, ["--workload=rw-register", "--level=repeatable-read"], "G2-item"),
        (STALE_READ, ["--workload=rw-register"], None),
        (STALE_READ, ["--workload=rw-register", "--real-time"], "G-single-real-time"),
        (STALE_READ, ["--workload=rw-register", "--level=strict-serializable"], "G-single-real-time"),
        (STALE_READ, ["--workload=rw-register", "--level=strong-snapshot-isolation"], "G-single-real-time"),
        (STALE_READ, ["--workload=rw-register", "--level=causal"], None),
        (SKEWED_APPENDS, ["--workload=list-append"], "G2-item"),
        (SKEWED_APPENDS, ["--workload=list-append", "--level=serializable"], "G2-item"),
        (SKEWED_APPENDS, ["--workload=list-append", "--level=snapshot-isolation"], None),
    ],
)
def test_transactions_are_judged_by_an_isolation_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], options: list[str], anomaly: str | None
) -> None:
    verdict, anomalies, _ = checked(tmp_path / "h.edn", capsys, padded(events), *options)
    assert (verdict, anomalies) == (("pass", {}) if anomaly is None else ("fail", {anomaly: 1}))


@pytest.mark.parametrize(
    ("level", "verdict"),
    [("read-uncommitted", "pass"), ("read-committed", "fail"), ("strong-read-committed", "fail"), ("causal", "fail")],
)
def test_an_intermediate_read_behind_an_own_write_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], level: str, verdict: str
) -> None:
    found = checked(
        tmp_path / "h.edn", capsys, padded(READ_BEHIND_OWN_WRITE), "--workload=rw-register", f"--level={level}"
    )
    assert found[0] == verdict
    assert "G1b" in found[1]


def test_the_output_states_the_level_and_what_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(padded(STALE_READ)))
    assert main(["check", str(path), "--workload=rw-register"]) == ExitCode.PASS
    said = capsys.readouterr().out
    assert "judged as rw-register by the isolation level serializable, the default without --level" in said
    assert "level serializable: one order of all transactions explains every read; an order of 13 transactions" in said
    assert main(["check", str(path), "--workload=rw-register", "--level=strict-serializable"]) == ExitCode.FAIL
    said = capsys.readouterr().out
    assert "2 transactions go round in a circle, a stale read: transaction 0 had returned at " in said
    assert "level strict-serializable: " in said


def test_reads_of_initial_values_are_enough_for_a_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = done(0, "txn", "[[:r :x nil] [:w :x 1]]"), done(1, "txn", "[[:r :x nil] [:w :x 2]]")
    for options in ([], ["--level=strict-serializable"]):
        assert checked(tmp_path / "h.edn", capsys, first, "--workload=rw-register", *options)[0] == "pass"
    both = [*first, *second]
    assert checked(tmp_path / "h.edn", capsys, both, "--workload=rw-register", "--level=causal")[0] == "pass"
    assert checked(tmp_path / "h.edn", capsys, both, "--workload=rw-register")[:2] == ("fail", {"G-single": 1})
    blind = [*done(0, "txn", "[[:w :x 1]]"), *done(1, "txn", "[[:w :y 1]]")]
    assert checked(tmp_path / "h.edn", capsys, blind, "--workload=rw-register")[0] == "unknown"


def test_values_that_are_not_unique_make_the_level_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(padded([*STALE_READ, *done(3, "txn", "[[:w :x 1]]")])))
    assert main(["check", str(path), "--workload=rw-register"]) == ExitCode.UNKNOWN
    assert "1 was written to x twice, so reads of it have no single writer" in capsys.readouterr().out


BEGUN_WITH_0 = [
    *done(0, "txn", "[[:r :x nil] [:w :x 1]]", "[[:r :x 0] [:w :x 1]]"),
    *done(1, "txn", "[[:r :x nil] [:r :y nil]]", "[[:r :x 1] [:r :y 0]]"),
]


@pytest.mark.parametrize(
    ("more", "options", "verdict", "anomalies"),
    [
        ([], [], "fail", ["garbage-read"]),
        ([], ["--initial=0"], "pass", []),
        ([], ["--initial=x=0", "--initial=y=0"], "pass", []),
        ([], ["--initial=x=0"], "fail", ["garbage-read"]),
        (done(2, "txn", "[[:r :x nil] [:w :x 2]]", "[[:r :x 0] [:w :x 2]]"), ["--initial=0"], "fail", ["G-single"]),
        (done(2, "txn", "[[:r :z nil]]"), ["--initial=0"], "fail", ["garbage-read"]),
        (done(2, "txn", "[[:w :x 0]]"), ["--initial=0"], "unknown", []),
        (done(2, "txn", "[[:w :x 0]]", type="fail"), ["--initial=0"], "pass", []),
        (done(2, "txn", '[[:r :z nil] [:w :z :b]]', '[[:r :z "a"] [:w :z :b]]'), ["--initial=0", '--initial=z="a"'],
         "pass", []),
    ],
)  # fmt: skip
def test_registers_of_transactions_have_the_given_initial_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[Event], options: list[str], verdict: str,
    anomalies: list[str],
) -> None:  # fmt: skip
    found = checked(tmp_path / "h.edn", capsys, [*BEGUN_WITH_0, *more], "--workload=rw-register", *options)
    assert (found[0], list(found[1])) == (verdict, anomalies)


def test_initial_values_of_transactions_are_suggested_and_doubted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn([*BEGUN_WITH_0, *done(2, "txn", "[[:w :x 0]]")]))
    main(["check", str(path), "--workload=rw-register"])
    assert "the register began with 0, say --initial=0" in capsys.readouterr().out
    main(["check", str(path), "--workload=rw-register", "--initial=0"])
    assert "0 was written to x, and is its initial value, so reads of it have no single" in capsys.readouterr().out
    assert "the history has no such key" in rejected(capsys, str(path), "--workload=rw-register", "--initial=q=0")


ABORTED_READERS = {
    "of an aborted write": (
        [*done(0, "txn", "[[:w :x 5]]", type="fail"), *done(1, "txn", "[[:r :x nil]]", "[[:r :x 5]]", type="fail")],
        ["G1a"],
    ),
    "of two snapshots": (
        [*done(0, "txn", "[[:w :x 5] [:w :y 5]]"), *done(1, "txn", "[[:w :x 6] [:w :y 6]]"),
         *done(2, "txn", "[[:r :x nil] [:r :y nil] [:w :x 7]]", "[[:r :x 5] [:r :y 6] [:w :x 7]]", type="info")],
        ["G-single"],
    ),
    "of one snapshot and its own write": (
        [*done(0, "txn", "[[:w :x 5] [:w :y 5]]"), *done(1, "txn", "[[:w :x 6] [:w :y 6]]"),
         *done(2, "txn", "[[:w :z 7] [:r :z nil] [:r :x nil] [:r :y nil]]", "[[:w :z 7] [:r :z 7] [:r :x 5] [:r :y 5]]",
               type="fail")],
        [],
    ),
    "that shows nothing": (done(2, "txn", "[[:r :x nil] [:r :y nil]]", type="fail"), []),
}  # fmt: skip


@pytest.mark.parametrize("case", ABORTED_READERS)
def test_reads_of_failed_and_unknown_transactions_are_judged_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    events, anomalies = ABORTED_READERS[case]
    events = [*done(3, "txn", "[[:w :q 1]]"), *done(4, "txn", "[[:r :q nil]]", "[[:r :q 1]]"), *events]
    default = checked(tmp_path / "h.edn", capsys, events, "--workload=rw-register")
    assert default[:2] == ("pass", {})
    assert "no known outcome are not judged; --all-reads" in default[2]
    asked = checked(tmp_path / "h.edn", capsys, events, "--workload=rw-register", "--all-reads")
    assert list(asked[1]) == anomalies
    assert "are judged as well" in asked[2]


def test_reads_of_unknown_transactions_of_lists_are_judged_by_a_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        *done(0, "txn", "[[:append :x 5] [:append :y 5]]"),
        *done(2, "txn", "[[:r :x nil]]", "[[:r :x [5]]]"),
        *done(1, "txn", "[[:r :x nil] [:append :x 9] [:r :x nil] [:r :y nil]]",
              "[[:r :x [5]] [:append :x 9] [:r :x [5 9]] [:r :y []]]", type="info"),
    ]  # fmt: skip
    assert checked(tmp_path / "h.edn", capsys, events, "--workload=list-append")[0] == "pass"
    found = checked(tmp_path / "h.edn", capsys, events, "--workload=list-append", "--all-reads")
    assert found[:2] == ("fail", {"G-single": 1})
    assert "by the isolation level serializable" in found[2]


def test_a_level_belongs_to_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn(bank()))
    assert "--level goes with --workload=" in rejected(capsys, str(path), "--workload=bank", "--level=causal")
    with pytest.raises(SystemExit):
        main(["check", str(path), "--workload=rw-register", "--level=highest"])
    assert "there is no isolation level 'highest'; there are read-uncommitted, " in capsys.readouterr().err


ONE_KEY_AFTER_THE_OTHER: list[Event] = [
    *done(1, "txn", "[1 [[:w :x 1]]]"), *done(2, "txn", "[2 [[:w :x 2]]]"),
    *done(3, "txn", "[1 [[:r :x nil]]]", "[1 [[:r :x 1]]]"), *done(4, "txn", "[2 [[:r :x nil]]]", "[2 [[:r :x 2]]]"),
]  # fmt: skip
STALE_UNDER_A_KEY: list[Event] = [
    *done(1, "txn", "[1 [[:w :x 1]]]"), *done(2, "txn", "[1 [[:w :x 2]]]"),
    *done(3, "txn", "[1 [[:r :x nil]]]", "[1 [[:r :x 1]]]"), *done(4, "txn", "[2 [[:w :x 2]]]"),
]  # fmt: skip
READS_BEFORE_WRITES: list[Event] = [
    *done(1, "txn", "[1 [[:w :x 1]]]"), *done(2, "txn", "[2 [[:w :y 1]]]"),
    *done(1, "txn", "[2 [[:r :y nil]]]"), *done(2, "txn", "[1 [[:r :x nil]]]"),
]  # fmt: skip
"""Each key has a serial order that respects the sessions. Both keys together have none."""


@pytest.mark.parametrize(
    ("events", "level", "anomalies"),
    [
        (ONE_KEY_AFTER_THE_OTHER, "strict-serializable", set()),
        (STALE_UNDER_A_KEY, "strict-serializable", {"G-single-real-time"}),
        (STALE_UNDER_A_KEY, "serializable", set()),
        (READS_BEFORE_WRITES, "strong-session-serializable", set()),
        (READS_BEFORE_WRITES, "causal", set()),
    ],
)
def test_transactions_under_different_keys_have_no_object_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], level: str, anomalies: set[str]
) -> None:
    reads = [event for key in range(10) for event in done(90, "txn", f"[1 [[:r {900 + key} nil]]]")]
    found = checked(
        tmp_path / "h.edn", capsys, [*events, *reads], "--workload=rw-register", "--keys=tuples", f"--level={level}"
    )
    assert set(found[1]) == anomalies
    assert found[0] == ("fail" if anomalies else "pass")


def test_joined_names_of_objects_must_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.edn"
    path.write_text(edn([*done(1, "txn", '["a" [[:w "b/c" 1]]]'), *done(1, "txn", '["a/b" [[:w "c" 1]]]')]))
    said = rejected(capsys, str(path), "--workload=rw-register", "--keys=tuples")
    assert "objects under the keys a and a/b would have one name, a/b/c" in said


@pytest.mark.parametrize("keys", [[], ["--keys=tuples"]])
@pytest.mark.parametrize(
    ("events", "level"),
    [(ONE_KEY_AFTER_THE_OTHER, "strict-serializable"), (READS_BEFORE_WRITES, "strong-session-serializable")],
)
def test_the_certificate_of_a_history_with_keys_is_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[Event], level: str, keys: list[str]
) -> None:
    path, certificate = tmp_path / "h.edn", tmp_path / "certificate.json"
    path.write_text(edn(events))
    main(["check", str(path), "--workload=rw-register", f"--level={level}", f"--certificate={certificate}", *keys])
    assert main(["verify", str(certificate), str(path)]) == ExitCode.PASS, capsys.readouterr()
