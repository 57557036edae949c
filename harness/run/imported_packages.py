"""The Python packages that a user's modules import, found in their source, and pinned to the versions installed here.

Code that runs in a container needs them there. The search begins at the modules of the system and of the client, and
follows imports of the user's own modules.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

OWN_PACKAGE: Final = "assay"
DEVELOPMENT_EXTRAS: Final = re.compile(r"extra ?== ?['\"](dev|tests?|testing|docs?|lint|typing)['\"]")
GENERIC_PARTS: Final = ("checkers", "cluster", "harness", "nemesis", "reports")
"""Packages of this project whose imports are not followed. Its other packages count as modules of a user, because they
describe a system and its tests, as a user's modules do."""


def find_imported_packages(modules: Sequence[str]) -> tuple[str, ...]:
    """Returns the installed packages that the loaded modules import, each as ``name==version``, sorted.

    An import inside a function counts, too.
    """
    distributions, waiting, seen, found = metadata.packages_distributions(), list(modules), set(modules), set[str]()
    while waiting:
        for name in _list_imports(waiting.pop()):
            if name in seen:
                continue
            seen.add(name)
            top = name.partition(".")[0]
            if top in distributions and top != OWN_PACKAGE:
                found.update(distributions[top])
            elif name in sys.modules and not _is_generic(name):
                waiting.append(name)
    packages = {name for one in found for name in (one, *_list_installed_parts(one))}
    return tuple(sorted(f"{name}=={metadata.version(name)}" for name in packages if name != OWN_PACKAGE))


def normalize_name(name: str) -> str:
    """Returns a distribution's name in the form that is equal for all its spellings (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_generic(name: str) -> bool:
    words = name.split(".")
    return words[0] == OWN_PACKAGE and (len(words) == 1 or words[1] in GENERIC_PARTS)


def _list_imports(module: str) -> Iterator[str]:
    """Yields the dotted names that a loaded module imports, ``from a import b`` as ``a`` and ``a.b``."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if file is None or not file.endswith(".py"):
        return
    package = (getattr(loaded, "__package__", None) or "").split(".")
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*around, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{name.name}" for name in node.names)


def _list_installed_parts(name: str) -> Iterator[str]:
    """Yields the optional parts of a package that are installed here, such as ``psycopg-binary`` of ``psycopg``."""
    for requirement in metadata.requires(name) or ():
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        if match is None or "extra" not in requirement or DEVELOPMENT_EXTRAS.search(requirement):
            continue
        if normalize_name(match[0]).startswith(f"{normalize_name(name)}-"):
            try:
                metadata.version(match[0])
            except metadata.PackageNotFoundError:
                continue
            yield match[0]
