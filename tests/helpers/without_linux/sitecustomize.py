"""Takes from an interpreter what only Linux has, before any other code runs (``tests/helpers/other_system.py``)."""

import importlib
import os
import sys
import types

from helpers.linux_only import ATTRIBUTES, FUNCTIONS


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event == "ctypes.dlsym" and arguments[1] in FUNCTIONS:
        raise AttributeError(f"only Linux has {arguments[1]}")


for module, names in ATTRIBUTES.items():
    if module in ("os", "select", "signal", "time"):
        loaded = importlib.import_module(module)
        for name in names:
            vars(loaded).pop(name, None)
sys.addaudithook(refuse)
if hidden := os.environ.get("HIDDEN_PROC"):
    import ctypes.util  # noqa: F401 - Debian's Python lacks its part for macOS

    import psutil  # its module for Linux, which finds the processes here

    psutil.PROCFS_PATH = hidden
    sys.platform = "darwin"
    proxies = types.ModuleType("_scproxy")  # macOS' settings
    vars(proxies).update(_get_proxy_settings=dict, _get_proxies=dict)
    sys.modules["_scproxy"] = proxies
