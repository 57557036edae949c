"""What searches came through, and what they never did: each leaves a file in the store, and ``assay search show`` sums
them up, test by test.

A search that finds nothing proves as much as it has reached. So what it keeps is every state that it knows (``states``)
with the number of examples that came to it, beside what could have been reached: the turning points that the system
declares, the faults that could be drawn, and the lines and branches of its code.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from assay.harness.core.files import read_json, write_atomically
from assay.harness.run.store import safe_name
from assay.harness.search.code_coverage.coverage_file import ModuleReached
from assay.harness.search.code_coverage.coverage_file import together as of_all

SEARCHES: Final = "searches"
"""The folder of the store that takes them."""
NOTHING: Final = "nothing"
"""In place of the faults in force, where there were none."""

_COUNT: Final = re.compile(r"(\S+) x\d+")
_DURING: Final = re.compile(r"(\S+) during (\S+)")
_STRUCK: Final = re.compile(r"(\S+) injected")


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What one search, or several of one test, came through.

    ``states``: each in how many examples. ``events``: the turning points that the system declares; ``faults``: those
    that could be drawn.
    """

    test: str
    started: str
    seconds: float
    examples: int
    verdicts: dict[str, int]
    states: dict[str, int]
    events: tuple[str, ...]
    faults: tuple[str, ...]
    searches: int = 1
    code: tuple[ModuleReached, ...] = ()
    """Lines and branches of the system; empty where they were not counted."""

    @property
    def seen(self) -> dict[str, int]:
        """Events of the logs: in how many examples each."""
        return _sums((match[1], many) for match, many in self._matching(_COUNT))

    @property
    def struck(self) -> dict[str, int]:
        """Faults: in how many examples each was injected."""
        return _sums((match[1], many) for match, many in self._matching(_STRUCK))

    @property
    def during(self) -> dict[str, dict[str, int]]:
        """By fault, or ``nothing``, the events that came while it was in force: each in that many examples at least."""
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for match, many in self._matching(_DURING):
            for fault in match[2].split("+"):
                found[fault][match[1]] = max(found[fault][match[1]], many)
        return {fault: dict(events) for fault, events in found.items()}

    @property
    def sequences(self) -> dict[str, int]:
        """Two or three events in a row on one node about one key: in how many examples."""
        return {state: many for state, many in self.states.items() if " > " in state}

    @property
    def never_seen(self) -> list[str]:
        return sorted(set(self.events) - self.seen.keys())

    @property
    def never_struck(self) -> list[str]:
        return sorted(set(self.faults) - self.struck.keys())

    def _matching(self, pattern: re.Pattern[str]) -> Iterable[tuple[re.Match[str], int]]:
        for state, many in self.states.items():
            if match := pattern.fullmatch(state):
                yield match, many


def keep(store: Path, reached: Reached) -> Path:
    """Writes it into the store; returns the file."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    path = store / SEARCHES / f"{safe_name(reached.test)}-{moment}Z.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.encode(reached, order="sorted"))
    return path


def load(path: Path) -> list[Reached]:
    """Of a file, or of all in a store: one of each test, the searches of one test summed up.

    Raises ``FileNotFoundError`` when there is none, ``ValueError`` for a file that is no search's.
    """
    folder = path / SEARCHES
    files = [path] if path.is_file() else sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(
            f"{path} holds what no search has reached: run one, pytest workloads/ --explore=10min, and give its store"
        )
    by_test: defaultdict[str, list[Reached]] = defaultdict(list)
    for file in files:
        one = _read(file)
        by_test[one.test].append(one)
    return [together(several) for _, several in sorted(by_test.items())]


def together(several: Sequence[Reached]) -> Reached:
    """The searches of one test as one."""
    return Reached(
        test=several[0].test,
        started=min(one.started for one in several),
        seconds=sum(one.seconds for one in several),
        examples=sum(one.examples for one in several),
        verdicts=_sums(pair for one in several for pair in one.verdicts.items()),
        states=_sums(pair for one in several for pair in one.states.items()),
        events=tuple(sorted({event for one in several for event in one.events})),
        faults=tuple(sorted({fault for one in several for fault in one.faults})),
        searches=sum(one.searches for one in several),
        code=of_all([one.code for one in sorted(several, key=lambda one: one.started)]),
    )


def rarest(counts: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Those that the fewest examples came to, at most so many."""
    return sorted(counts.items(), key=lambda pair: (pair[1], pair[0]))[:most]


def _read(file: Path) -> Reached:
    try:
        return read_json(file, Reached)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} does not hold what a search has reached, move it away: {error}") from error


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name, many in pairs:
        total[name] += many
    return dict(total)
