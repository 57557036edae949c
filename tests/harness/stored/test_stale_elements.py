"""``--workload=set-full`` ignores elements that are missing for a while, as if the reads had shown them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from assay.checkers.judging.verdict import Judgement
from assay.harness.cli.main import main
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.stored import by_workload
from assay.harness.stored.effects_of_workload import WorkloadEffects, find_key, is_ok
from assay.harness.stored.request import CheckRequest

from helpers.workload_files import Event, edn


def make_filled_effects(done: Sequence[Completed], request: CheckRequest) -> WorkloadEffects:
    """Adds each allowed element to all reads that were called after it was known, if their last one shows it."""
    sets: dict[str, list[Completed]] = {}
    for one in done:
        sets.setdefault(find_key(one, "set"), []).append(one)
    shown: dict[int, list[int]] = {}
    for ones in sets.values():
        reads = [one for one in ones if is_ok(one, "read")]
        for read in reads:
            shown[read.index] = list(dict.fromkeys(read.completion.result))
        adds = [one for one in ones if one.operation.f == "add" and one.completion.outcome is not Outcome.FAIL]
        for element in {one.operation.argument for one in adds}:
            acks = [one.ret for one in adds if one.operation.argument == element and is_ok(one, "add")]
            showing = [read for read in reads if element in shown[read.index]]
            moments = [*acks, *(read.ret for read in showing)]
            known = min([moment for moment in moments if moment is not None], default=-1)
            if showing and max(read.call for read in showing) == max(read.call for read in reads):
                for read in reads:
                    if read.call > known and read not in showing:
                        shown[read.index].append(element)
    rows = []
    for one in done:
        key, kind = find_key(one, "set"), f"set-{one.operation.f}"
        values = shown.get(one.index, []) if kind == "set-read" else [one.operation.argument]
        rows.append((one, [Effect(kind, key, value=value) for value in values or [None]]))
        if kind == "set-read" and one.index not in shown:
            rows[-1] = (one, [])
    return WorkloadEffects(rows)


def draw_events(chance: random.Random) -> list[Event]:
    """Overlapping adds and reads of two sets. Reads lack elements, lose some for good, and show a strange one."""
    events: list[Event] = []
    held: dict[str, set[int]] = {"a": set(), "b": set()}
    lost = set(chance.sample(range(12), 2)) if chance.random() < 0.5 else set()
    strange = {99} if chance.random() < 0.2 else set()
    ending: dict[int, Event] = {}
    for _ in range(chance.randrange(10, 50)):
        process = chance.randrange(4)
        if process in ending:
            events.append(ending.pop(process))
            continue
        key = chance.choice("ab")
        if chance.random() < 0.5:
            element = chance.randrange(12)
            kind = chance.choices(("ok", "info", "fail"), (6, 2, 1))[0]
            value = f'["{key}" {element}]'
            if kind != "fail" and element not in lost:
                held[key].add(element)
            events.append((process, "invoke", "add", value))
            ending[process] = (process, kind, "add", value)
        else:
            shown = {one for one in held[key] if chance.random() < chance.choice((0.4, 0.9, 1.0))} | strange
            events.append((process, "invoke", "read", f'["{key}" nil]'))
            ending[process] = (process, "ok", "read", f'["{key}" [{" ".join(map(str, sorted(shown)))}]]')
    events += ending.values()
    for key, elements in held.items():
        events.append((8, "invoke", "read", f'["{key}" nil]'))
        events.append((8, "ok", "read", f'["{key}" [{" ".join(map(str, sorted(elements)))}]]'))
    return events


def test_the_judgement_is_that_of_filled_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, verdicts, allowed = random.Random(3), set(), 0
    for _ in range(30):
        (tmp_path / "h.edn").write_text(edn(draw_events(chance)))
        both = []
        for maker in (by_workload.EFFECT_MAKERS["set-full"], make_filled_effects):
            with monkeypatch.context() as patch:
                patch.setitem(by_workload.EFFECT_MAKERS, "set-full", maker)  # type: ignore[arg-type]
                main(["check", str(tmp_path / "h.edn"), "--workload=set-full", "--keys=tuples", "--json"])
            both.append(msgspec.json.decode(capsys.readouterr().out, type=Judgement))
        own, filled = both
        allowed += "were missing from a read for a while" in "".join(one.note or "" for one in own.examined)
        verdicts.add(own.verdict)
        assert (own.verdict, own.anomalies, own.unknown, own.kinds) == (
            filled.verdict, filled.anomalies, filled.unknown, filled.kinds,
        )  # fmt: skip
        assert own.findings == filled.findings
        counts = [
            [(one.check, one.rows, one.claims, one.exposed) for one in each.examined if one.check.startswith("set-")]
            for each in both
        ]
        differing = [pair for pair in zip(*counts, strict=True) if pair[0] != pair[1] and pair[0][0] != "set-phantom"]
        assert not differing
    assert len(verdicts) == 2
    assert allowed > 10
