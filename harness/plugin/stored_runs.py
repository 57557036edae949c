"""Prevents pytest from collecting stored runs, because collection executes every ``conftest.py`` and test file there.

A stored run may come from elsewhere. So:

1. The folder of a run is ignored with its content. So is a test's folder in a store, which holds runs.
2. A user who names such a path on the command line also needs ``--trust-run``. Without it the session ends before
   pytest loads the first ``conftest.py``. A parent of a store is collected without its runs.
3. pytest loads ``test*/conftest.py`` below a named folder before it asks plugins whether to ignore the file. If the
   file lies among stored runs, the session ends, too.

A run may have been copied into a project. So a folder that contains the rootdir counts as a project, even if there are
runs in it. This rule holds only if the rootdir has a file with pytest's options: without such a file, pytest has only
guessed the rootdir.
"""

import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TRUST = "--trust-run"


def is_run(folder: Path) -> bool:
    """Returns whether the folder is a run: ``run.json`` is ours, or the folder's name is that of a run."""
    if not os.path.lexists(folder / "run.json"):
        return False
    from assay.harness.run.store import RUN_NAME, read_info

    return RUN_NAME.fullmatch(folder.name) is not None or read_info(folder) is not None


def find_stored_folder(path: Path, config: pytest.Config) -> Path | None:
    """Returns the first folder of a run, or of a test in a store, among the path and its parents; None if none is.

    The path is tried as given, and with links followed. Outside the rootdir, a folder with a run counts only if it is
    the path or its parent, because folders such as ``/tmp`` may contain a run by chance.
    """
    for start in (path, path.resolve()):
        for folder in (start, *start.parents):
            near = folder in (start, start.parent) or folder.is_relative_to(config.rootpath)
            if is_run(folder) or (near and holds_runs(folder, config)):
                return folder
    return None


def holds_runs(folder: Path, config: pytest.Config) -> bool:
    """Returns whether a folder is that of a test in a store: there are runs in it, and it is no project."""
    root, options = config.rootpath, config.inipath
    is_project = options is not None and options.is_relative_to(root) and root.is_relative_to(folder)
    return not is_project and any(map(is_run, _list_folders(folder)))


def _list_folders(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:
        return  # a file, or a folder that pytest cannot read either


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Rejects paths among stored runs, unless they are named and trusted."""
    given, here = early_config.known_args_namespace, early_config.invocation_params.dir
    for path in [one for one in _list_paths(early_config) if os.path.lexists(one)] or [here]:
        if find_stored_folder(path, early_config) is None:
            # pytest loads these files early, although the folders are not named.
            early = [one.parent for one in path.glob("test*/conftest.py")]
        else:
            early = [] if given.trust_run else [path]
        for one in early:
            if (folder := find_stored_folder(one, early_config)) is not None:
                raise pytest.UsageError(
                    f"{one} lies among stored runs ({folder}), and pytest would execute the Python files there: "
                    f"name the folders of your tests, or, if you trust these files, this path with {TRUST}"
                )


def _list_paths(config: pytest.Config) -> Iterator[Path]:
    """Yields the paths that pytest will collect: those of the command line, or of ``testpaths``.

    With ``--pyargs``, names may also be those of packages and modules. Python would execute the packages to find them.
    """
    here, named = config.invocation_params.dir, config.known_args_namespace.file_or_dir
    if not named and here == config.rootpath:
        named = [path for pattern in config.getini("testpaths") for path in glob.iglob(pattern, recursive=True)]
    for name in named:
        yield here / (path := name.partition("::")[0])
        if config.known_args_namespace.pyargs:
            for entry in sys.path:
                module = here / entry / path.replace(".", os.sep)
                yield from (module, module.with_name(f"{module.name}.py"))


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores stored runs unless they are named and trusted.

    If the path is a symbolic link, the parents of its target are examined, too. For other paths this is not needed,
    because pytest does not descend into a parent that was ignored.
    """
    if collection_path.is_symlink():
        stored = find_stored_folder(collection_path, config) is not None
    else:
        stored = is_run(collection_path) or holds_runs(collection_path, config)
    if not stored or (config.getoption("trust_run") and _is_named(collection_path, config)):
        return None
    return True


def _is_named(path: Path, config: pytest.Config) -> bool:
    """Returns whether the command line names this path, or a parent of it, among stored runs."""
    named = [config.invocation_params.dir / name.partition("::")[0] for name in config.args]
    return any(path.is_relative_to(os.path.abspath(one)) for one in named if find_stored_folder(one, config))
