"""The documentation site in a browser: pages of each part, light and dark, wide and narrow, for every reader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from helpers.accessibility import violations
from helpers.browser import chromium, complaints

pytestmark = [pytest.mark.browser, pytest.mark.long]

SITE = Path(__file__).parents[1] / "build" / "site"
PAGES = (
    "index.html", "start/first_red_run.html", "guide/key_value_server.html", "concepts/simulation.html",
    "cookbook/checking.html", "reference/generated/workloads.html", "broker/groups.html", "help/security.html",
)  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if not SITE.exists():
        pytest.skip("no site: make docs")
    handler = partial(SimpleHTTPRequestHandler, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_reader_can_use_it(browser: Any, address: str, scheme: str, width: int) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(f"{address}/index.html")
    browser.execute_script("localStorage.clear()")  # the theme remembers the scheme that it chose
    browser.get_log("browser")
    try:
        for page in PAGES:
            browser.get(f"{address}/{page}")
            shown = browser.execute_script("return document.body.getAttribute('data-md-color-scheme')")
            assert shown == {"light": "default", "dark": "slate"}[scheme]
            assert violations(browser) == [], page
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
        assert complaints(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
