"""Judges operations by a model: a foreign file's, or a history folder's ``ops``.

Registers whose values are whole numbers, each written once, go through the SQL checks, which say what is wrong by name
(stale-read, lost-update, ...). Everything else goes through the search for a linearization, some keys at a time, so
that Ctrl-C leaves a judgement of the keys that were done.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.contract import Contract
from checkers.engine import DuckDB, Engines
from checkers.judge import Watch, judge
from checkers.source import OPTIONAL, register_parts
from checkers.validate import untouched, validate
from checkers.verdict import Examined, Finding, Judgement, Verdict
from harness.app.register_effects import register_effects
from harness.core.history import HistoryError, HistoryReader, HistoryWriter
from harness.core.operation import Outcome

Search = Callable[[pa.Table, str], Judgement]
"""Operations of some keys, and a model's name."""

SQL_MODELS: Final = ("register", "cas-register")
LOOKS: Final = ("read", "get", "cas", "dequeue", "acquire")
"""Operations that can contradict others. A history without any proves nothing."""
BATCH: Final = 50_000
"""Operations that go through the search together, as whole keys."""
MOST_FINDINGS: Final = 20


def search_by_name(ops: pa.Table, model: str) -> Judgement:
    """Raises ``HistoryError`` when the operations are not those of the model."""
    from checkers.linearizability import MODELS, ModelError, search

    try:
        return search(ops, MODELS[model])
    except ModelError as error:
        raise HistoryError(f"the operations are not those of {model}: {error}") from error


def stored_operations(folder: Path) -> pa.Table:
    """The operations of a history folder, whose rows obey the format's rules. Raises ``HistoryError``."""
    reader = HistoryReader(folder, optional=(*OPTIONAL, "effects"))
    untouched(reader)
    with DuckDB() as engine:
        register_parts(engine, reader)
        validate(engine, reader, complete=False)
    ops = reader.table("ops")
    _readable_values(folder, ops)
    return ops


def _readable_values(folder: Path, ops: pa.Table) -> None:
    """The checks read no JSON; models do."""
    for column in ("argument", "result"):
        for text in pc.unique(ops[column]).to_pylist():
            try:
                if text is not None:
                    msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                row = pc.index(ops[column], text).as_py()
                raise HistoryError(
                    f"{folder / 'ops'}: {column} of operation {ops['index'][row]} is no JSON: {error}"
                ) from error


def rejudge(ops: pa.Table, model: str, engines: Engines, watch: Watch, search: Search = search_by_name) -> Judgement:
    """Whether ``ops`` are those of a linearizable ``model``. Raises ``HistoryError`` when they are not the model's.

    ``KeyboardInterrupt`` ends it, with what is known until then.
    """
    effects = register_effects(ops) if model in SQL_MODELS else None
    if effects is not None:
        return _by_checks(ops, effects, engines, watch)
    return _verdict(_by_search(ops, model, search, watch), doubts(ops))


def doubts(ops: pa.Table) -> list[str]:
    """Why a history proves too little to pass, whatever is found in it: as of one of our own."""
    ok = pc.equal(ops["outcome"], Outcome.OK.value)
    succeeded = pc.sum(ok).as_py() or 0
    least = Contract().minimum_operations
    reasons = ["the history is empty"] if ops.num_rows == 0 else []
    if succeeded < least:
        reasons.append(f"only {succeeded} operations succeeded, the contract asks for {least}")
    looked = pc.sum(pc.and_(ok, pc.is_in(ops["f"], pa.array(LOOKS)))).as_py() or 0
    if succeeded and not looked:
        reasons.append(f"no operation that could contradict another ({', '.join(LOOKS)}) succeeded")
    return reasons


def _by_checks(ops: pa.Table, effects: pa.Table, engines: Engines, watch: Watch) -> Judgement:
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        history = Path(folder) / "history"
        with HistoryWriter(history) as writer:
            for name, table in (("ops", ops), ("effects", effects)):
                for batch in table.to_batches(max_chunksize=1_000_000):
                    writer.batch(name, batch)
        return judge(history, Contract(), engine=engines, watch=watch)


def _by_search(ops: pa.Table, model: str, search: Search, watch: Watch) -> Judgement:
    parts: list[Judgement] = []
    stopped, done, keys_done, keys = False, 0, 0, 0
    try:
        batches = list(_by_keys(ops))
        keys = sum(count for count, _ in batches)
        for count, batch in batches:
            watch(f"searching {keys} keys", done, ops.num_rows)
            parts.append(search(batch, model))
            done += batch.num_rows
            keys_done += count
    except KeyboardInterrupt:
        stopped = True
    judgement = _merged(parts, ops.num_rows)
    if not stopped:
        return judgement
    return _verdict(
        msgspec.structs.replace(judgement, interrupted=True), [f"interrupted; {keys_done} of {keys} keys were searched"]
    )


def _by_keys(ops: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """(number of keys, their operations), whole keys together until there are ``BATCH`` operations."""
    if ops.num_rows == 0:
        yield 0, ops
        return
    codes = pc.fill_null(
        ops["key"].combine_chunks().dictionary_encode().indices.cast(pa.int64()), -1
    ).to_numpy(zero_copy_only=False)  # fmt: skip
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-2))
    ends = [*starts[1:].tolist(), len(order)]
    begin, count = 0, 0
    for end in ends:
        count += 1
        if end - begin >= BATCH or end == len(order):
            yield count, ops.take(pa.array(np.sort(order[begin:end])))
            begin, count = end, 0


def _merged(parts: Sequence[Judgement], operations: int) -> Judgement:
    anomalies: dict[str, int] = {}
    findings: list[Finding] = []
    for part in parts:
        for name, number in part.anomalies.items():
            anomalies[name] = anomalies.get(name, 0) + number
        findings += part.findings
    failed = any(part.verdict is Verdict.FAIL for part in parts)
    unknown = tuple(dict.fromkeys(reason for part in parts for reason in part.unknown))
    return Judgement(
        verdict=Verdict.FAIL if failed else Verdict.UNKNOWN if unknown or not parts else Verdict.PASS,
        anomalies=anomalies,
        forbidden=tuple(dict.fromkeys(name for part in parts for name in part.forbidden)),
        tolerated=(),
        findings=tuple(findings[:MOST_FINDINGS]),
        examined=_added(one for part in parts for one in part.examined),
        unknown=unknown,
        operations=operations,
        effects=0,
        seconds=sum(part.seconds for part in parts),
        engine=parts[0].engine if parts else "search",
    )


def _added(rows: Iterator[Examined]) -> tuple[Examined, ...]:
    """One row per check; the notes are of batches, so that of the only one stays."""
    by_check: dict[str, list[Examined]] = {}
    for row in rows:
        by_check.setdefault(row.check, []).append(row)
    return tuple(
        Examined(
            check=check,
            rows=sum(one.rows for one in those),
            seconds=sum(one.seconds for one in those),
            note="; ".join(dict.fromkeys(one.note for one in those if one.note is not None))
            if len(those) < 3
            else None,
        )
        for check, those in by_check.items()
    )


def _verdict(judgement: Judgement, reasons: Sequence[str]) -> Judgement:
    """With more reasons not to pass."""
    unknown = tuple(dict.fromkeys((*reasons, *judgement.unknown)))
    verdict = Verdict.UNKNOWN if judgement.verdict is Verdict.PASS and unknown else judgement.verdict
    return msgspec.structs.replace(judgement, verdict=verdict, unknown=unknown)
