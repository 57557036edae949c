"""The pytest arguments that repeat a stored run, made of typed fields and never of the text of its command.

A stored run may come from elsewhere. pytest imports the test file that it is given, so the file must belong to this
project. A recorded command may contain options that load other code. So:

1. ``settings.json`` is read into ``Settings``, and each option is made of one field.
2. The test's file must exist below the current folder, but outside of all stores.
3. Files that options name must lie below the current folder. A schedule may also lie in the run's store. ``hosts.toml``
   may not, because it names the machines on which faults run commands.
4. Paths are compared with all symbolic links followed, because a link of the project may lead to a store.
5. A recorded command with unknown options is rejected: another version made the run, or the run was changed.
"""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.harness.core.files import read_json
from assay.harness.core.history import HistoryError
from assay.harness.core.printable import to_printable
from assay.harness.run.command_line import RECORDED_OPTIONS, make_repeat_command
from assay.harness.run.settings import Settings
from assay.harness.run.store import LATEST, RunInfo

COMPOSE: Final = "compose:"


class RepetitionDeclined(Exception):
    """The user does not want to repeat the run."""


def read_run_settings(run: Path) -> Settings:
    """Reads the settings of a run. Raises ``HistoryError`` if ``settings.json`` is missing or damaged."""
    path = run / "settings.json"
    try:
        chosen = read_json(path, dict[str, Any])["settings"]
        if "workers" in chosen:  # the name of ``client_nodes`` in earlier runs
            chosen["client_nodes"] = chosen.pop("workers")
        return msgspec.convert(chosen, Settings, dec_hook=lambda kind, value: Path(value) if kind is Path else value)
    except (OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise HistoryError(f"{path} does not say how the run was made, so it cannot be done again: {error}") from error


def find_test(run: Path, info: RunInfo) -> str:
    """Returns the id of a run's test without parameters. Raises ``HistoryError`` unless it belongs to this project."""
    test = info.test.partition("[")[0]
    file, colons, _ = test.partition("::")
    project = Path.cwd().resolve()
    path = _resolve(project / file)
    if not colons or test.startswith(("-", "@")) or path.suffix != ".py":
        raise HistoryError(f"{run}: {to_printable(info.test)} is no test that could be done again")
    if not path.is_relative_to(project):
        raise HistoryError(f"{run}: its test {to_printable(file)} lies outside of this project, {project}")
    stored = any(path.is_relative_to(place) for place in (run.resolve(), *_find_enclosed_store(run, project)))
    if stored or _is_stored(path, project):
        raise HistoryError(
            f"{run}: its test {to_printable(file)} lies among stored runs, and is no test of this project"
        )
    if not path.is_file():
        raise HistoryError(f"{run}: there is no file {to_printable(file)} in {project}: go to the folder of its tests")
    return test


def build_repeat_arguments(run: Path, info: RunInfo) -> list[str]:
    """Returns the pytest arguments that repeat the run. Raises ``HistoryError`` if they would load other code."""
    test, settings = find_test(run, info), read_run_settings(run)
    _refuse_other_options(run, info, test)
    _refuse_other_files(run, settings)
    return shlex.split(make_repeat_command(test, settings))[1:]


def _refuse_other_options(run: Path, info: RunInfo, test: str) -> None:
    try:
        recorded = shlex.split(info.command)[1:]
    except ValueError:
        raise HistoryError(f"{run}: its command cannot be read: {to_printable(info.command)}") from None
    for word in recorded:
        if word != test and word.partition("=")[0] not in RECORDED_OPTIONS:
            raise HistoryError(
                f"{run}: its command has {to_printable(word)}, which is no option of a run and could load other "
                "code, so it is not done again"
            )


def _refuse_other_files(run: Path, settings: Settings) -> None:
    project = Path.cwd().resolve()
    stores = (run.resolve(), run.resolve().parent.parent)
    if (path := settings.replay) is not None and not _lies_in(project / path, (project, *stores)):
        raise HistoryError(f"{run}: --replay={to_printable(str(path))} lies outside of this project, {project}")
    if (path := settings.hosts) is None or str(path).startswith(COMPOSE):
        return
    if not _lies_in(project / path, (project,)):
        raise HistoryError(f"{run}: --hosts={to_printable(str(path))} lies outside of this project, {project}")
    places = (run.resolve(), *_find_enclosed_store(run, project))
    if _lies_in(project / path, places) or _is_stored(_resolve(project / path), project):
        raise HistoryError(
            f"{run}: --hosts={to_printable(str(path))} lies among stored runs, and is no file of this project"
        )


def _lies_in(path: Path, places: Iterable[Path]) -> bool:
    resolved = _resolve(path)
    return any(resolved.is_relative_to(place) for place in places)


def _find_enclosed_store(run: Path, project: Path) -> list[Path]:
    """Returns the store of the run if it is a folder inside the project."""
    root = run.resolve().parent.parent
    return [root] if root != project and root.is_relative_to(project) else []


def _is_stored(path: Path, project: Path) -> bool:
    """Returns whether a file of the project lies in a run or in a store, which contains a link ``latest``."""
    parents = [folder for folder in path.parents if folder != project and folder.is_relative_to(project)]
    return any((folder / "run.json").exists() or os.path.lexists(folder / LATEST) for folder in parents)


def _resolve(path: Path) -> Path:
    """Resolves a path. Raises ``HistoryError`` for a loop of links, or an invalid path."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise HistoryError(f"{to_printable(str(path))} leads nowhere: {error}") from error
