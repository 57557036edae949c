"""axe-core in a browser's page: what keeps people with a keyboard or a screen reader from it."""

from __future__ import annotations

from typing import Any

from helpers.npm import package

RUN = """
const done = arguments[arguments.length - 1];
axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then(
  found => done(found.violations.flatMap(one => one.nodes.map(node => `${one.id}: ${node.html.slice(0, 160)}`))),
  error => done([String(error)]));
"""
TABBED = "a[href], button, input, select, summary, [tabindex]"


def violations(browser: Any) -> list[str]:
    """Rule and element of each violation of WCAG 2.2 (A, AA) or of good practice; skips the test without axe-core."""
    browser.execute_script((package("axe-core") / "axe.min.js").read_text(encoding="utf-8"))
    browser.set_script_timeout(120)
    found: list[str] = browser.execute_async_script(RUN)
    return sorted(set(found))


def tab_stops(browser: Any, most: int) -> list[int]:
    """Presses the tab key from the top of the page; of each stop its place in the document."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.execute_script(
        "document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0);"
        "window.places = new Map([...document.querySelectorAll('*')].map((one, place) => [one, place]))"
    )
    stops: list[int] = []
    for _ in range(most):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        place = browser.execute_script(
            "return document.activeElement === document.body ? null : window.places.get(document.activeElement) ?? null"
        )
        if place is None or (stops and place == stops[0]):
            break
        stops.append(place)
    return stops
