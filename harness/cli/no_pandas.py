"""Keeps pyarrow from importing pandas, which takes as long as ``assay check`` of a small history.

When pyarrow converts the first list to an array, it looks for pandas, to recognise its objects. None of our objects
are. A later conversion to pandas (``to_pandas``) imports it and still works.
"""

import sys
from collections.abc import Sequence

import pyarrow as pa


class _PandasHider:
    """Import hook that hides pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("pandas is not imported for a first look")


def hide_pandas() -> None:
    """Hides pandas from pyarrow's first look, unless it is imported. Only for processes that run no code of a user."""
    if "pandas" in sys.modules or not hasattr(pa.lib, "_pandas_api"):
        return
    nowhere = _PandasHider()
    sys.meta_path.insert(0, nowhere)
    try:
        _ = pa.lib._pandas_api.have_pandas  # pyarrow's Python part looks once, and caches the result
        pa.infer_type([0])  # so does its C++ part
    finally:
        sys.meta_path.remove(nowhere)
