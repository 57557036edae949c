"""A headless Chromium that keeps to itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-prefers-reduced-motion",
    "--window-size=1366,900",
)  # fmt: skip
PATIENCE = 30.0


@contextmanager
def chromium(profile: Path, *, requests: bool = False) -> Iterator[Any]:
    """Skips the test where there is none. ``requests``: what it asks for is in its log ``performance``."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing: pip install selenium")
    if not (CHROMIUM.exists() and DRIVER.exists()):
        pytest.skip("no Chromium: apt-get install -y chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    logs = {"browser": "ALL", "performance": "ALL"} if requests else {"browser": "ALL"}
    options.set_capability("goog:loggingPrefs", logs)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def wait(browser: Any, condition: str) -> None:
    """Until this script returns true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, PATIENCE).until(lambda driver: driver.execute_script(condition))


def asked_for(browser: Any) -> list[str]:
    """The addresses of all requests since this was asked last; of a browser with ``requests``."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
