"""Judges a run while it goes on: each time that its history has grown, all of it again, by what can be known so far.

What is found is found in the history as a whole, too: what is under way stands in it with an unknown outcome, nothing
is held against a run that its end would excuse, and checks that read what servers report wait for the end
(``assay.checkers.judging.early_checks``). Judging all of it again keeps no state from one time to the next, so memory
is the engine's limit, whatever the length of the run. Time is not: between two judgements there is a pause that is
longer than the first, so that the machine is the cluster's for the most part, and what a long run does is seen later
than what a short one does.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from assay.checkers.engine import Engines
from assay.checkers.judging.history_views import open_history
from assay.checkers.judging.verdict import Judgement
from assay.harness.core.files import SpecialFileError
from assay.harness.core.history import HistoryReader
from assay.harness.core.history.live_manifest import sealed
from assay.harness.run import store
from assay.harness.run.judging import judge_run
from assay.harness.run.registry import Registry
from assay.harness.run.settings import SettingsError
from assay.harness.stored.by_contract import judge_again, open_stored
from assay.harness.stored.contracts import without_contract
from assay.reports.evidence import look_up
from assay.reports.failure_text import Ending, describe

POLL: Final = 0.2
"""Seconds between two looks at whether there is more."""
REST: Final = 2.0
"""The pause after a judgement, in its duration."""
MEMORY: Final = "1GB"


@dataclass(frozen=True)
class Look:
    """One judgement of what there was. ``until``: seconds of the run that it knows; ``taken``: that it lasted.

    ``text``: the judgement in words; ``ended``: it is the last, of the whole run.
    """

    until: float
    taken: float
    judgement: Judgement
    text: str
    ended: bool


def going_on(path: Path, skipped: Callable[[SpecialFileError], None] = lambda error: None) -> Path:
    """The run that a user means: a run's folder, or of a store the newest run that goes on.

    ``skipped`` is called for each newer run of a store that cannot be read because of a special file. Raises
    ``SettingsError`` when there is no run that goes on.
    """
    if store.read_run(path) is not None:
        return path
    if not path.is_dir():
        raise SettingsError(f"{path} is neither a run nor a store of runs")
    for run in sorted(store.runs(path), key=lambda run: run.name, reverse=True):
        if (special := store.special_file(run)) is not None:
            skipped(special)
        elif store.goes_on(run):
            return run
    raise SettingsError(f"no run goes on in {path}; start one, or give the folder of one that is over")


def watch(
    run: Path, engines: Engines, registry: Registry, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Look]:
    """The judgements of a run, each of more of it, the last one of all of it.

    A run whose process ends without closing its history has its last judgement, too. Raises what
    ``open_stored`` and ``judge_again`` raise.
    """
    seen = 0
    while store.goes_on(run):
        seal = sealed(run / "history")
        if seal is None or seal.number == seen:
            sleep(POLL)
            continue
        seen = seal.number
        look = _so_far(run, engines, registry)
        if look is not None:
            yield look
            sleep(REST * look.taken)
    yield _whole(run, engines, registry)


def _so_far(run: Path, engines: Engines, registry: Registry) -> Look | None:
    """None where the writer was quicker: what was under way is there no more."""
    begun = time.monotonic()
    stored = open_stored(run)
    if stored.seal is None:
        return None
    with tempfile.TemporaryDirectory(prefix="assay-watch-") as kept:
        passing = set(stored.seal.under_way.values())
        try:
            paths = {
                name: [Path(shutil.copy(path, kept)) if path.name in passing else path for path in some]
                for name, some in stored.seal.paths(stored.history).items()
            }
        except FileNotFoundError:
            return None
        history = open_history(stored.history, paths)
        missing = registry.missing(stored.extensions, stored.load)
        judgement = judge_run(
            history, stored.contract, engines, registry, going_on=True, missing=missing, load=stored.load
        )
        if stored.lost is not None:
            judgement = without_contract(judgement, stored.lost)
        text = describe(judgement, look_up(history, judgement), Ending())
        return Look(_until(history), time.monotonic() - begun, judgement, text, ended=False)


def _until(history: HistoryReader) -> float:
    """Seconds: when the last of its operations was called."""
    latest = 0
    for path in history.paths("ops"):
        metadata = pq.read_metadata(path)
        column = metadata.schema.to_arrow_schema().get_field_index("call")
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group).column(column).statistics
            if found is not None and found.has_min_max:
                latest = max(latest, found.max)
    return latest / 1e9


def _whole(run: Path, engines: Engines, registry: Registry) -> Look:
    begun = time.monotonic()
    stored = open_stored(run)
    history = stored.opened()
    judgement = judge_again(stored, history, engines, registry)
    ending = Ending(
        seed=None if stored.info is None else stored.info.seed,
        command=None if stored.info is None else stored.info.command,
        report=None if stored.report is None else str(stored.report),
        digest=None if stored.info is None else stored.info.digest,
    )
    text = describe(judgement, look_up(history, judgement), ending)
    return Look(_until(history), time.monotonic() - begun, judgement, text, ended=True)
