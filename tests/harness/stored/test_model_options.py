"""Arguments of models, initial values and owners of locks, as ``assay check`` takes them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pytest

from assay.checkers.engine import Engines
from assay.checkers.judging.verdict import Verdict
from assay.checkers.linearizability import Limits
from assay.checkers.linearizability.model import InitialValues
from assay.checkers.linearizability.models import CasRegister, Register
from assay.harness.cli.command import ExitCode
from assay.harness.cli.main import main
from assay.harness.run.registry import Registry
from assay.harness.run.settings import SettingsError
from assay.harness.stored.by_model import judge_by_model
from assay.harness.stored.initial_values import read_initial_values, read_values

from helpers.linearizability_histories import history, operation, table
from helpers.linearizability_oracle import MEANING, Op, linearizable

NO_LIMITS = Limits(seconds=None)


def written(path: Path, *lines: str, times: bool = False) -> str:
    """A file with these operations: ``0 acquire nil -> 5``, or ``0 acquire nil`` for an unknown outcome."""
    entries = []
    for line in lines:
        call, _, result = line.partition(" -> ")
        process, f, value = call.split(" ", 2)
        for type, shown in (("invoke", value), ("ok", result) if result else ("info", value)):
            stamp = f", :time {len(entries) * 1_000_000_000}" if times else ""
            entries.append(f"{{:process {process}, :type :{type}, :f :{f}, :value {shown}{stamp}}}")
    path.write_text("\n".join(entries))
    return str(path)


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """Returns the verdict and the text."""
    code = ExitCode(main(["check", *arguments]))
    return code.name.lower(), capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["check", *arguments]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    return line


READS = ["0 read nil -> 0", "0 cas [0 3] -> [0 3]", *["1 read nil -> 3"] * 10]
KEYED = [
    '0 read ["x" nil] -> ["x" 0]',
    '0 read ["y" nil] -> ["y" 7]',
    '1 write ["x" 1] -> ["x" 1]',
    *['1 read ["x" nil] -> ["x" 1]'] * 9,
]


@pytest.mark.parametrize("given", [["--model=cas-register(0)"], ["--model=cas-register", "--initial=0"]])
def test_a_register_may_begin_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str]) -> None:
    file = written(tmp_path / "h.edn", *READS)
    assert judged(capsys, file, *given)[0] == "pass"
    verdict, text = judged(capsys, file, "--model=cas-register")
    assert verdict == "fail"
    assert "The first read shows 0, which no one had written: if the register began with 0, say --initial=0\n" in text


def test_keys_may_begin_with_different_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "h.edn", *KEYED)
    verdict, text = judged(capsys, file, "--model=register")
    assert verdict == "fail"
    assert "The first read of x shows 0" in text
    assert "say --initial=x=0 --initial=y=7\n" in text
    assert judged(capsys, file, "--model=register", "--initial=x=0", "--initial=y=7")[0] == "pass"
    assert judged(capsys, file, "--model=register(7)", "--initial=x=0")[0] == "pass"
    assert judged(capsys, file, "--model=register", "--initial=7")[0] == "fail"
    assert "gives values to :x, and the history has only x, y" in refused(
        capsys, file, "--model=register", "--initial=:x=0"
    )


def test_a_workload_of_registers_suggests_the_option_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", written(tmp_path / "h.edn", *KEYED), "--workload=lin-kv"])
    assert "say --initial=x=0 --initial=y=7\n" in capsys.readouterr().out


def test_a_model_has_its_own_operations_if_a_workload_has_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workload set has only ``add`` and ``read``."""
    right = ["0 add 1 -> 1", "0 contains 1 -> true", "0 remove 1 -> 1", "0 read nil -> #{}"]
    for lines, verdict in ((right, "pass"), ([*right[:-1], "0 read nil -> #{1}"], "fail")):
        main(["check", written(tmp_path / "h.edn", *lines), "--model=set", "--json"])
        assert msgspec.json.decode(capsys.readouterr().out)["verdict"] == verdict
    assert main(["check", written(tmp_path / "h.edn", *right), "--workload=set"]) == ExitCode.USAGE
    assert ":contains is no operation of set, which has add, read" in capsys.readouterr().err


def test_only_a_first_read_suggests_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["0 write 1 -> 1", "0 read nil -> 1", "0 write 2 -> 2", *["1 read nil -> 1"] * 9]
    verdict, text = judged(capsys, written(tmp_path / "h.edn", *lines), "--model=register")
    assert verdict == "fail"
    assert "--initial" not in text


@pytest.mark.parametrize(
    ("model", "initial", "lines"),
    [
        ("kv", '"ab"', ['0 get nil -> "ab"', '0 append "c" -> "c"', *['1 get nil -> "abc"'] * 10]),
        ("register", ":a", ["0 read nil -> :a", *["1 write :b -> :b"] * 10]),
        ("register", "[1 2]", ["0 read nil -> [1 2]", *["1 write :b -> :b"] * 10]),
    ],
)
def test_values_of_any_kind_may_be_initial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, initial: str, lines: list[str]
) -> None:
    file = written(tmp_path / "h.edn", *lines)
    options = [f"--model={model}", "--keys=none"]
    assert judged(capsys, file, *options, f"--initial={initial}")[0] == "pass"
    verdict, text = judged(capsys, file, *options)
    assert verdict == "fail"
    assert f"if the register began with {initial}, say " in text


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (["--model=cas-register(0, 1)"], "cas-register does not take 2 arguments"),
        (["--model=cas-register(a)"], 'its arguments must be values such as 0 or "a": a is a name; the string is "a"'),
        (["--model=semaphore"], "--model=semaphore needs an argument, such as 'semaphore(2)'"),
        (["--model=semaphore(0)"], "the argument of semaphore is a whole number from 1 on, not 0"),
        (["--model=mutex", "--initial=0"], "--initial is for registers and kv: the model mutex takes no initial value"),
        (["--model=register", "--initial="], "there are 0 values, and there must be one"),
        (["--model=register", "--initial=0 1"], "there are 2 values, and there must be one"),
        (
            ["--model=register", "--initial=0", "--initial=1"],
            "every key has another initial value already",
        ),
        (["--model=register(2)", "--initial=0"], "--initial gives a value, and so does --model=register(...)"),
        (["--model=cas-register", "--initial=z=0"], "--initial gives values to z, and the history has no keys"),
        (
            ["--workload=bank", "--initial=0"],
            "--initial goes with --workload=rw-register, register, cas-register, lin-kv",
        ),
        (["--model=lease-mutex(10)"], "the model lease-mutex measures durations, which need a :time of each entry"),
    ],
)
def test_what_cannot_be_is_one_line_and_64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], reported: str
) -> None:
    lines = ["0 acquire nil -> nil"] if given[0].startswith(("--model=lease", "--model=mutex")) else READS
    assert reported in refused(capsys, written(tmp_path / "h.edn", *lines), *given)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0, 1", [0, 1]), ("0 1", [0, 1]), ("", []), ("nil", [None]), ("null", [None]), ('"a=b"', ["a=b"]),
        ("[1 2]", [[1, 2]]), ('{"a": 1}', [{"a": 1}]), (":a", [{"keyword": "a"}]),
    ],
)  # fmt: skip
def test_values_are_json_or_edn(text: str, values: list[Any]) -> None:
    assert read_values(text) == values


def test_an_equals_sign_after_a_key_or_in_a_string() -> None:
    assert read_initial_values(["a=1", '"b=2"', 'c="d=3"']) == InitialValues("b=2", {"a": 1, "c": "d=3"})


def test_contracts_name_models_with_arguments() -> None:
    registry = Registry.extended()
    model = registry.model("cas-register(5)")
    assert isinstance(model, CasRegister)
    assert model.initial_values.find(None) == 5
    for name in ("semaphore", "cas-register(", "cas-registre(0)"):
        with pytest.raises(SettingsError):
            registry.model(name)


@pytest.mark.parametrize("initial", [None, 1, 3])
def test_the_checks_in_sql_begin_with_the_value_as_the_search_does(initial: int | None) -> None:
    """All legal histories are keys of one; of the others, each is judged by itself."""
    rng = random.Random(f"{initial}")
    model = CasRegister(initial)
    found: dict[bool, list[list[Op]]] = {True: [], False: []}
    for number in range(200):
        ops = unique_writes(history("cas-register", rng, initial=initial, spread=6), initial, number)
        if initial is None or not any(op["f"] == "read" and op["result"] is None for op in ops):
            found[linearizable(ops, MEANING["cas-register"], initial)].append(ops)
    assert len(found[True]) > 50
    wrong = found[False][:4]
    assert len(wrong) == 4
    for ops in ([(str(key), one) for key, one in enumerate(found[True])], *([("k", one)] for one in wrong)):
        rows = table(ops)
        compact = pc.replace_substring(rows["argument"], ", ", ",")  # as recorded
        rows = rows.set_column(rows.schema.get_field_index("argument"), rows.schema.field("argument"), compact)
        judgement = judge_by_model(rows, model, Engines("sqlite"), lambda *step: None, NO_LIMITS)
        assert judgement.engine == "sqlite"
        assert (judgement.verdict is Verdict.FAIL) == (len(ops) == 1), ops


@pytest.mark.parametrize("shown", [None, 5])
def test_a_nil_that_no_one_wrote_is_left_to_the_search(shown: int | None) -> None:
    ops = [operation("read", None, shown, call=0, ret=1), operation("write", 7, call=2, ret=3)]
    judgement = judge_by_model(table([(None, ops)]), Register(5), Engines("sqlite"), lambda *step: None, NO_LIMITS)
    assert judgement.engine == ("search" if shown is None else "sqlite")
    assert (judgement.verdict is Verdict.FAIL) == (shown is None)


def unique_writes(ops: list[Op], initial: int | None, number: int) -> list[Op]:
    """Without a second write of a value, with a process for each operation, and with times that all differ, also from
    those of any other ``number``."""
    kept, known = [], {initial}
    for at, op in enumerate(ops):
        idle = op["f"] == "cas" and (op["result"] is False or op["argument"][0] == op["argument"][1])
        value = op["argument"][1] if op["f"] == "cas" else op["argument"]
        if not idle and (op["f"] == "read" or value not in known):
            known |= set() if op["f"] == "read" else {value}
            first = number * 1_000_000 + 50_000 + 2 * at
            ret = None if op["ret"] is None else first + op["ret"] * 1000 + 1
            kept.append({**op, "call": first + op["call"] * 1000, "ret": ret, "process": 20 * number + at})
    return kept


@pytest.mark.parametrize(
    ("model", "lines", "verdict"),
    [
        ("owner-mutex", ["0 acquire nil -> nil", "1 release nil -> nil"], "fail"),
        ("mutex", ["0 acquire nil -> nil", "1 release nil -> nil"], "pass"),
        # Process 0 goes on after an operation of unknown outcome, and is still the same client.
        ("owner-mutex", ["0 acquire nil -> nil", "0 release nil", "0 release nil -> nil"], "pass"),
        ("owner-mutex", ["0 acquire nil -> nil", "0 acquire nil", "0 release nil -> nil"], "pass"),
        ("reentrant-mutex", ["0 acquire nil -> nil", "0 acquire nil -> nil", "0 release nil -> nil"], "pass"),
        ("reentrant-mutex", ["0 acquire nil -> nil", "0 acquire nil -> nil", "0 release nil -> nil",
                             "1 acquire nil -> nil"], "fail"),
        ("reentrant-mutex(1)", ["0 acquire nil -> nil", "0 acquire nil -> nil"], "fail"),
        ("fenced-mutex", ['0 acquire "u1" -> {:client "n1", :fence 4, :uid "u1"}', '0 release "u2" -> {:client "n1"}',
                          '1 acquire "u3" -> {:client "n2", :fence 5, :uid "u3"}'], "pass"),
        ("fenced-mutex", ['0 acquire "u1" -> {:client "n1", :fence 4, :uid "u1"}', '0 release "u2" -> {:client "n1"}',
                          '1 acquire "u3" -> {:client "n2", :fence 4, :uid "u3"}'], "fail"),
        ("fenced-reentrant-mutex", ["0 acquire nil -> 4", "0 acquire nil -> 4"], "pass"),
        ("fenced-reentrant-mutex", ["0 acquire nil -> 4", "0 acquire nil -> 5"], "fail"),
        ("semaphore(2)", ["0 acquire nil -> nil", "1 acquire nil -> nil", "2 release nil -> nil"], "pass"),
        ("semaphore(2)", ["0 acquire nil -> nil", "1 acquire nil -> nil", "2 acquire nil -> nil"], "fail"),
        ("owner-semaphore(2)", ["0 acquire nil -> nil", "1 acquire nil -> nil", "2 release nil -> nil"], "fail"),
        ("lease-mutex(3)", ["0 acquire nil -> nil", "0 renew nil -> nil", "1 acquire nil -> nil"], "pass"),
        ("lease-mutex(3.5)", ["0 acquire nil -> nil", "0 renew nil -> nil", "1 acquire nil -> nil"], "fail"),
    ],
)  # fmt: skip
def test_locks_and_semaphores_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, lines: list[str], verdict: str
) -> None:
    """Calls and returns are a second apart, so the last acquire may take effect 3 s after the renewal."""
    file = written(tmp_path / "h.edn", *lines, times=True)
    main(["check", file, f"--model={model}", "--json"])
    judgement = msgspec.json.decode(capsys.readouterr().out)
    assert ("fail" if judgement["findings"] else "pass") == verdict


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 5_000, "nested more than 100 levels deep"),
        ('"\\ud800"', "half"),
        ("x=" + "[" * 5_000, "nested more than"),
    ],
    ids=["deep", "half a character", "deep for a key"],
)
def test_a_value_that_no_history_can_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = written(tmp_path / "h.edn", *READS)
    assert said in refused(capsys, file, "--model=cas-register", f"--initial={text}")
    if "=" not in text:
        assert said in refused(capsys, file, f"--model=cas-register({text})")


def test_a_number_that_is_too_large_for_json_is_infinite_and_not_null() -> None:
    assert read_values("1e400") == [{"float": "Infinity"}] == read_values("##Inf")


def test_a_hint_does_not_control_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "h.edn", '0 read nil -> "a\u202eb\u009b31m"', "0 write 1 -> 1")
    verdict, text = judged(capsys, file, "--model=register")
    assert verdict == "fail"
    assert "which no one had written" in text
    assert "\u202e" not in text
    assert "\u009b" not in text
