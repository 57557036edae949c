"""Judges the register histories that other checkers' tests publish, and compares the verdicts with their claims.

    python benchmarks/published_histories.py --awdit=DIR --polysi=DIR --isovista=DIR --dbcop=DIR [--out=DIR]

Each DIR is a git repository of that project; its newest commit is read. The histories stay there: this script only
converts them to Jepsen's EDN, below ``--out``. Each history is judged by ``assay check`` at the levels of its source,
and as serializable with and without the order of sessions. The output is a table in Markdown.

The order of sessions belongs to each level of these sources. So their levels are the ``strong-session-`` ones here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from assay.harness.cli.main import main as run_assay

Event = tuple[str, str, int | None]
"""``r`` or ``w``, key and value."""


@dataclass(frozen=True)
class Transaction:
    events: tuple[Event, ...]
    is_committed: bool = True


@dataclass(frozen=True)
class History:
    """A history with what its source says of it. ``claims``: (level of the source, whether it satisfies the level)."""

    source: str
    name: str
    sessions: tuple[tuple[Transaction, ...], ...]
    claims: tuple[tuple[str, bool], ...] = field(default=())

    @property
    def begins_with_0(self) -> bool:
        """Whether a read shows a 0 that no transaction wrote."""
        events = [event for session in self.sessions for one in session for event in one.events]
        written = {(key, value) for f, key, value in events if f == "w"}
        return any(f == "r" and value == 0 and (key, value) not in written for f, key, value in events)


LEVELS: Final = {
    "read-committed": "strong-session-axiomatic-read-committed",
    "read-atomic": "strong-session-read-atomic",
    "causal": "causal",
    "snapshot-isolation": "strong-session-snapshot-isolation",
    "serializable": "strong-session-serializable",
    # dbcop's names
    "CommittedRead": "strong-session-axiomatic-read-committed",
    "AtomicRead": "strong-session-read-atomic",
    "Causal": "causal",
    "SnapshotIsolation": "strong-session-snapshot-isolation",
    "Serializable": "strong-session-serializable",
}
"""The levels of the sources, with those here. dbcop's prefix consistency and repeatable read are none of these."""


def read_awdit(show: Callable[[str], str], paths: Sequence[str]) -> Iterator[History]:
    """Reads the test format: sessions between ``=====``, transactions between ``-----``, a line for each event."""
    holds = {"causal": 3, "read-atomic": 2, "read-committed": 1, "none": 0}
    for path in paths:
        match = re.fullmatch(r"histories/tests/([a-z-]+)/(.+)\.txt", path)
        if match is None:
            continue
        sessions = tuple(
            tuple(
                Transaction(tuple((f, key, int(value)) for f, key, value in map(str.split, lines)))
                for text in re.split(r"-+\n", session)
                if (lines := [line for line in text.splitlines() if line.strip()])
            )
            for session in re.split(r"=+\n", show(path))
        )
        levels = ("read-committed", "read-atomic", "causal")
        claims = tuple((level, number < holds[match[1]]) for number, level in enumerate(levels))
        yield History("AWDIT", f"{match[1]}/{match[2]}", sessions, claims)


def read_java(source: str, level: str, text: str) -> Iterator[History]:
    """Reads the tests of PolySI and IsoVista: maps of sessions to transactions, and of transactions to events."""
    for name, body in re.findall(r"void (\w+)\(\) \{(.*?)\n    ?\}|void", text.replace("\t", "    "), re.DOTALL):
        if "Triple.of" not in body or "audit" not in body:
            continue
        maps = re.split(r"Map\.of\(", body)
        order = {int(key): [int(one) for one in ones.split(",")]
                 for key, ones in re.findall(r"(\d+), List\.of\(([\d, ]+)\)", maps[1])}  # fmt: skip
        events: dict[int, tuple[Event, ...]] = {}
        for key, ones in re.findall(r"(\d+), List\.of\(\s*(Triple.*?\))\s*\)(?=[,)]|\s*\))", maps[2], re.DOTALL):
            found = re.findall(r'Triple\.of\((READ|WRITE), "(\w+)", (\d+)\)', ones)
            events[int(key)] = tuple(("r" if f == "READ" else "w", one, int(value)) for f, one, value in found)
        sessions = tuple(tuple(Transaction(events[one]) for one in ones) for ones in order.values())
        yield History(source, name, sessions, ((level, "assertTrue" in body),))


def read_plume(source: str, name: str, text: str, claims: tuple[tuple[str, bool], ...]) -> History:
    """Reads lines such as ``w(key,value,session,transaction)``."""
    sessions: dict[str, dict[str, list[Event]]] = {}
    for f, key, value, session, number in re.findall(r"([rw])\((\d+),(\d+),(\d+),(\d+)\)", text):
        sessions.setdefault(session, {}).setdefault(number, []).append((f, key, int(value)))
    read = tuple(tuple(Transaction(tuple(one)) for one in session.values()) for session in sessions.values())
    return History(source, name, read, claims)


_TOKEN: Final = re.compile(
    r"(?P<open>vec!\[|\[|\{)|(?P<close>[\]}])|(?P<dirty>uncommitted)"
    r"|\b(?:Event::(?:<[^>]*>::)?)?(?P<f>write|read_empty|read|w|r)\(\s*\"?(?P<key>\w+)\"?\s*(?:,\s*(?P<value>\d+))?,?\s*\)"
)
_CHECK: Final = re.compile(
    r"(?:let (?P<name>\w+) = )?\s*check(?:_(?P<short>\w+))?\(&?\w+(?:,\s*(?:Consistency::)?(?P<level>\w+))?\)"
)
_SHORT: Final = {
    "committed_read": "CommittedRead", "atomic_read": "AtomicRead", "causal_read": "Causal", "causal": "Causal",
    "repeatable_read": "RepeatableRead", "prefix": "Prefix",
}  # fmt: skip


def read_rust(file: str, text: str) -> Iterator[History]:
    """Reads the tests of dbcop: vectors of sessions, of transactions, of events, or the macro of that shape."""
    text = re.sub(r"//[^\n]*", "", text)
    functions = dict(re.findall(r"\nfn (\w+)\([^)]*\)[^{]*\{(.*?)\n\}", text, re.DOTALL))
    for name, body in functions.items():
        made = re.search(r"= (vec!\[|history! \{)", body)
        helper = re.search(r"= (\w+_history)\(\)", body)
        source = functions[helper[1]] if helper else body[made.end() - 5 :] if made else ""
        claims = tuple(_list_claims(body))
        sessions = _read_sessions(source)
        if claims and any(sessions):
            yield History("dbcop", f"{file}/{name}", sessions, claims)


def _read_sessions(text: str) -> tuple[tuple[Transaction, ...], ...]:
    sessions: list[list[tuple[list[Event], bool]]] = []
    depth, is_committed = 0, True
    for token in _TOKEN.finditer(
        text[re.search(r"vec!\[|\{", text).start() :] if re.search(r"vec!\[|\{", text) else ""
    ):
        if token["open"]:
            depth += 1
            if depth == 2:
                sessions.append([])
            elif depth == 3:
                sessions[-1].append(([], is_committed))
                is_committed = True
        elif token["close"]:
            depth -= 1
            if depth == 0:
                break
        elif token["dirty"]:
            is_committed = False
        elif depth == 3:
            value = None if token["value"] is None else int(token["value"])
            sessions[-1][-1][0].append((token["f"][0], token["key"], value))
    return tuple(tuple(Transaction(tuple(events), committed) for events, committed in one) for one in sessions)


def _list_claims(body: str) -> Iterator[tuple[str, bool]]:
    """Yields what a test asserts of its history. A loop over all levels asserts each."""
    for found in _CHECK.finditer(body):
        after = body[found.end() :]
        if found["name"] is not None:
            verdict = re.search(
                rf"(?:{found['name']}(\.is_ok|\.is_err)\(\)|matches!\(\s*{found['name']},\s*(Err))", after
            )
        else:
            verdict = re.match(r"\s*(?:(\.is_ok|\.is_err)\(\)|,\s*(Err))", after)
        if verdict is None:
            continue
        holds = verdict[1] == ".is_ok"
        level = _SHORT.get(found["short"] or "") or found["level"] or ""
        for one in re.findall(r"Consistency::(\w+),", body) if level == "level" else (level,):
            yield one, holds


def to_edn(history: History) -> str:
    """Returns the history as Jepsen writes it, one transaction at a time, those of all sessions in turn."""
    lines: list[str] = []
    for round_ in zip_longest(*history.sessions):
        for process, one in enumerate(round_):
            if one is None:
                continue
            for type_ in ("invoke", "ok" if one.is_committed else "fail"):
                nil = "0" if type_ == "ok" and history.begins_with_0 else "nil"
                micros = [
                    f"[:{f} :k{key} {nil if f == 'r' and (type_ != 'ok' or value is None) else value}]"
                    for f, key, value in one.events
                ]
                lines.append(
                    f"{{:index {len(lines)} :type :{type_} :process {process} :f :txn :value [{' '.join(micros)}]}}"
                )
    return "\n".join(lines) + "\n"


def judge(path: Path, level: str, options: Iterable[str]) -> str:
    """Returns the verdict of ``assay check``, with the anomalies if it is fail."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_assay(["check", str(path), "--workload=rw-register", f"--level={level}", "--json", *options])
    judgement = json.loads(printed.getvalue())
    found = [name for name, count in judgement["anomalies"].items() if count and name in judgement["forbidden"]]
    return judgement["verdict"] + (f" ({', '.join(found)})" if found else "")


def compare(history: History, folder: Path) -> tuple[str, bool]:
    """Returns the row of the table, and whether all verdicts agree with the source."""
    path = folder / f"{history.source}-{history.name.replace('/', '-')}.edn"
    path.write_text(to_edn(history))
    options = ["--initial=0"] if history.begins_with_0 else []
    texts, agrees = [], True
    for level, holds in dict(history.claims).items():
        if level not in LEVELS:
            continue
        verdict = judge(path, LEVELS[level], options)
        right = verdict.startswith("pass" if holds else "fail")
        agrees &= right
        texts.append(f"{level}: {'holds' if holds else 'violated'}{'' if right else f', here {verdict}'}")
    plain, session = (judge(path, f"{prefix}serializable", options) for prefix in ("", "strong-session-"))
    cells = (history.source, history.name, "; ".join(texts), plain, session, "right" if agrees else "wrong")
    return f"| {' | '.join(cells)} |", agrees


def read_repository(folder: Path) -> tuple[Callable[[str], str], list[str]]:
    """Returns a function that returns the text of a file, and the paths of all files."""

    def run(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout

    return lambda path: run("show", f"HEAD:{path}"), run("ls-tree", "-r", "--name-only", "HEAD").splitlines()


def list_histories(arguments: argparse.Namespace) -> Iterator[History]:
    if arguments.awdit:
        yield from read_awdit(*read_repository(arguments.awdit))
    if arguments.polysi:
        show, _ = read_repository(arguments.polysi)
        yield from read_java("PolySI", "snapshot-isolation", show("src/test/java/TestVerifier.java"))
    if arguments.isovista:
        show, _ = read_repository(arguments.isovista)
        for file, level in (("SI", "snapshot-isolation"), ("SER", "serializable")):
            text = show(f"src/test/java/Test{file}Verifier.java")
            for one in read_java("IsoVista", level, text):
                yield History(one.source, f"{file}/{one.name}", one.sessions, one.claims)
        for file, level in (
            ("dgraph_si", "snapshot-isolation"),
            ("pg_ser_bug", "serializable"),
            ("yugabyte_tcc", "causal"),
        ):
            yield read_plume("IsoVista", f"bugs/{file}", show(f"history/bugs/{file}.txt"), ((level, False),))
    if arguments.dbcop:
        show, paths = read_repository(arguments.dbcop)
        for path in paths:
            if re.fullmatch(r"crates/core/tests/\w+\.rs", path):
                yield from read_rust(Path(path).stem, show(path))


def merge(histories: Iterable[History]) -> list[History]:
    """Returns each history of a source once, with the claims of all its tests."""
    merged: dict[tuple[str, object], History] = {}
    for one in histories:
        first = merged.setdefault((one.source, one.sessions), one)
        if first is not one:
            merged[one.source, one.sessions] = replace(first, claims=(*first.claims, *one.claims))
    return list(merged.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("awdit", "polysi", "isovista", "dbcop", "out"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print("| source | history | its levels, and its claim | serializable | with sessions | agrees |")
        print("|---|---|---|---|---|---|")
        rows = []
        for history in merge(list_histories(arguments)):
            row, agrees = compare(history, folder)
            rows.append(agrees)
            print(row, flush=True)
    print(f"\n{len(rows)} histories; {sum(rows)} agree with their source")


if __name__ == "__main__":
    main()
