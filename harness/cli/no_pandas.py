"""Keeps pyarrow from importing pandas, which takes as long as all else that ``assay check`` does with a small history.

With the first array that it makes of a list, pyarrow looks whether pandas is installed, so as to know its objects.
None of ours are. It looks again when something converts to pandas (``to_pandas``), which goes on to work.
"""

import sys
from collections.abc import Sequence

import pyarrow as pa


class _Nowhere:
    """Finds no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("pandas is not imported for a first look")


def spare_pandas() -> None:
    """From now on, unless it has been imported already. For processes that run no code of a user's."""
    if "pandas" in sys.modules or not hasattr(pa.lib, "_pandas_api"):
        return
    nowhere = _Nowhere()
    sys.meta_path.insert(0, nowhere)
    try:
        _ = pa.lib._pandas_api.have_pandas  # its Python part looks once, and remembers
        pa.infer_type([0])  # so does its other one
    finally:
        sys.meta_path.remove(nowhere)
